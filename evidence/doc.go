// Package evidence is signed statements: detached Ed25519 signatures over
// domain-separated canonical bytes, the set of attesters that are listed, and
// the one statement there is, the receipt of an egress matrix.
//
// A signature proves authorship and integrity: this statement came from this
// key and was not altered. It does not prove the statement. So a key is listed
// by a reviewed change alone, and the set ships empty: no provider has
// security_boundary, ours included.
//
// Form: a statement is a file of canonical JSON (RFC 8785 without floats and
// null) and nothing after it. What is signed is the name of its domain, one zero
// byte, and that file. The signature is a second file of canonical JSON beside
// it, named like it with ".sig" at the end.
//
// Trusts: the set of attesters and the time that its caller gives. Does not
// trust: one byte of a statement or of a signature.
// Shapes: [Receipt], [Signature], [Attesters]; their JSON Schemas and golden
// vectors are in package evidence/vectors.
// Bounds: MaxReceiptBytes, MaxSignatureBytes, MaxAttestersBytes; whatever is
// longer is refused before it is read. Time is linear in them.
// Errors: always *Refused, which whoever holds the receipt has to mend; nothing
// is retried.
// Ownership: nothing that is given is kept or changed. Concurrency: all
// functions are pure and may be called by many goroutines at once.
// Source: grading "The five facts, and the three that cannot be self-attested";
// "What a signature proves"; "The current posture".
package evidence
