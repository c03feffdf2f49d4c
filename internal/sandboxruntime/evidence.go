package sandboxruntime

import (
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// checkEvidence holds evidence to the sixteen clauses.
// Errors: ProtocolInvalid{open_process_identity} with the clause's number.
// Source: contract "Optional capabilities: absent versus wrong", row openProcess.
func checkEvidence(s crosscheck.Subject, e sandbox.Evidence) error {
	if d, differs := crosscheck.First(crosscheck.Evidence(&s, &e)); differs {
		d.Field = "evidence." + d.Field
		return mismatch(OpOpenProcessIdentity, d)
	}
	return nil
}
