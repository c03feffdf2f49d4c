package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/sandbox"
)

// receiptCommand reads receipts, and makes keys. The receipts are made by who runs
// the matrix.
func (a *app) receiptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "receipt", Short: "Verify or show the signed receipt of an egress matrix",
		Long: `A receipt says that the hostile cases of egress were run against one exact
revision of a provider, and that all five facts held. It counts where its key is
in the reviewed set of attesters. That set is empty: no provider has
security_boundary, ours included, and every receipt is diagnostic.`,
		Example: `  checkfu egress receipt show receipt.json
  checkfu egress receipt verify receipt.json
  checkfu egress receipt verify receipt.json --attesters mine.json --json
  checkfu egress receipt keygen receipt.key > mine.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("receipt", "one of verify, show, keygen", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.verifyReceiptCommand(), a.showReceiptCommand(), a.receiptKeyCommand())
	return cmd
}

// receiptFlags are what a person says about a verification.
type receiptFlags struct {
	attesters, signature, envelope, at string
	asJSON                             bool
}

func (a *app) verifyReceiptCommand() *cobra.Command {
	f := receiptFlags{}
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Say whether a receipt stands, and what it certifies", Args: oneArgument("FILE"),
		Long: `Check the receipt FILE against its signature, FILE.sig, and the set of attesters:
who signed it, that nothing was altered, that all of it is there, that it is
neither from the future nor expired, and, with --envelope, that it is the
receipt of exactly that revision.

The reviewed set of this build lists nobody, so against it no receipt stands. What
is said besides is whether the receipt is whole and the key that it names signed it.
With --attesters the question is another one: whether a key of that file signed
it. What the answer certifies is then up to who asks; here it certifies nothing.

Ends with 0 where the receipt stands, with 6 where it does not, and with 2
where a file cannot be read.`,
		Example: `  checkfu egress receipt verify receipt.json
  checkfu egress receipt verify receipt.json --attesters mine.json --json
  checkfu envelope > envelope.json
  checkfu egress receipt verify receipt.json --envelope envelope.json`,
		RunE: func(_ *cobra.Command, args []string) error { return a.verifyReceipt(args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.attesters, "attesters", "", "file of attesters to ask about (default the reviewed set of this build, which is empty)")
	flags.StringVar(&f.signature, "signature", "", "the signature file (default FILE.sig)")
	flags.StringVar(&f.envelope, "envelope", "", "file with the envelope of the provider that the receipt must be for")
	flags.StringVar(&f.at, "at", "", "time of the judgement, YYYY-MM-DDTHH:MM:SS.mmmZ (default now)")
	flags.BoolVar(&f.asJSON, "json", false, "print the verdict as canonical JSON")
	return cmd
}

// verdict is what verify --json prints.
type verdict struct {
	Valid    bool            `json:"valid"`
	Reason   evidence.Reason `json:"reason,omitzero"`
	Field    string          `json:"field,omitzero"`
	Expected string          `json:"expected,omitzero"`
	Got      string          `json:"got,omitzero"`
	Message  string          `json:"message,omitzero"`
	// Whole says that it is a receipt and that Key signed it, whoever that is.
	Whole bool   `json:"whole"`
	Key   string `json:"key,omitzero"`
	// Reviewed says that the set is the one of this build; Listed counts it.
	Reviewed bool `json:"reviewed"`
	Listed   int  `json:"listed"`
	// What stands, and whose word it is.
	Attester *evidence.Attester `json:"attester,omitzero"`
	Receipt  *evidence.Receipt  `json:"receipt,omitzero"`
	// Certifies is the grade that this build takes from it: none but from the
	// reviewed set.
	Certifies sandbox.EgressCertification `json:"certifies,omitzero"`
}

func (a *app) verifyReceipt(path string, f receiptFlags) error {
	v := evidence.Verifier{Attesters: evidence.ReviewedAttesters(), Now: time.Now()}
	if f.signature == "" {
		f.signature = path + ".sig"
	}
	receipt, err := readBounded("FILE", path, evidence.MaxReceiptBytes)
	if err != nil {
		return err
	}
	signature, err := readBounded("--signature", f.signature, evidence.MaxSignatureBytes)
	if err != nil {
		return err
	}
	if f.attesters != "" {
		data, err := readBounded("--attesters", f.attesters, evidence.MaxAttestersBytes)
		if err != nil {
			return err
		}
		if v.Attesters, err = evidence.ParseAttesters(data); err != nil {
			return argument.Wrong("--attesters: expected a file of attesters, got %q (%v)", f.attesters, err)
		}
	}
	if f.envelope != "" {
		data, err := readBounded("--envelope", f.envelope, 1<<20)
		if err != nil {
			return err
		}
		var c sandbox.Capabilities
		if err = canonical.Decode(data, &c); err == nil {
			err = c.Validate()
		}
		if err != nil {
			return argument.Wrong("--envelope: expected an envelope (see checkfu envelope), got %q (%v)", f.envelope, err)
		}
		want := evidence.Receipt{Provider: c.Provider, ProviderRevision: c.ProviderRevision, MaterializationRevision: c.MaterializationRevision}.Certificate()
		v.For = &want
	}
	if f.at != "" {
		if v.Now, err = sandbox.Timestamp(f.at).Time(); err != nil {
			return argument.Unexpected("--at", "YYYY-MM-DDTHH:MM:SS.mmmZ", f.at)
		}
	}
	verified, err := v.Verify(receipt, signature)
	out := verdict{Valid: err == nil, Reviewed: f.attesters == "", Listed: len(v.Attesters.Attesters)}
	claim, key, whole := evidence.Whole(receipt, signature)
	if out.Whole = whole == nil; out.Whole {
		out.Key = key
	}
	if refused, ok := errors.AsType[*evidence.Refused](err); ok {
		out.Reason, out.Field, out.Expected, out.Got, out.Message = refused.Reason, refused.Field, refused.Expected, refused.Got, argument.OneLine(err.Error())
		a.complain(err)
		a.code = report.ExitEvidence
	} else {
		out.Attester, out.Receipt = &verified.Attester, &verified.Receipt
		if out.Reviewed {
			out.Certifies = sandbox.EgressSecurityBoundary
		}
	}
	if f.asJSON {
		data, err := canonical.Encode(out)
		if err != nil {
			return err
		}
		return a.print(append(data, '\n'))
	}
	return a.print([]byte(out.text(f.attesters, claim)))
}

// text says first what a reader must not miss.
func (v verdict) text(set string, claim evidence.Receipt) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	if v.Valid {
		line("receipt", "valid, signed by %s (%s)", v.Attester.Name, v.Attester.Key)
		b.WriteString(receiptText(*v.Receipt))
	} else {
		line("receipt", "not valid: %s", v.Reason)
		if v.Whole {
			line("form", "whole: %d facts, %d cases, %d mutants", len(claim.Facts), len(claim.Cases), len(claim.Mutants))
			line("signature", "holds, by %s", v.Key)
		}
	}
	switch {
	case !v.Reviewed:
		line("attesters", "%s, which is not the reviewed set of this build", argument.Printable(set))
		line("grade", "advisory_filter at most: this certifies nothing here")
	case v.Listed == 0:
		line("attesters", "nobody is listed: no receipt of anybody stands")
		line("grade", "advisory_filter at most, for every provider")
	case v.Valid:
		line("grade", "%s, for exactly this revision", v.Certifies)
	default:
		line("grade", "advisory_filter at most")
	}
	return b.String()
}

// receiptText is what a receipt says, whoever says it.
func receiptText(r evidence.Receipt) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("of", "%s %s %s", r.Provider, r.ProviderRevision, r.MaterializationRevision)
	for _, f := range r.Facts {
		line("fact", "%s", f)
	}
	line("topology", "%s %s", r.Topology, r.TopologyDigest)
	line("guard", "%s", r.GuardDigest)
	line("config", "%s, ech %s", r.GuardConfigDigest, r.ECH)
	line("ruleset", "%s", r.RulesetDigest)
	var skipped []evidence.Case
	for _, c := range r.Cases {
		if !c.Passed() {
			skipped = append(skipped, c)
		}
	}
	line("cases", "%d passed, %d skipped", len(r.Cases)-len(skipped), len(skipped))
	for _, c := range skipped {
		line("skipped", "%s: %s", c.ID, c.Reason)
	}
	line("mutants", "%d killed", len(r.Mutants))
	line("run", "%s, lease %s, epoch %d", r.RunID, r.LeaseID, r.LeaseEpoch)
	line("stands", "%s to %s", r.IssuedAt, r.ExpiresAt)
	return b.String()
}

func (a *app) showReceiptCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Print what a receipt says, without believing it", Args: oneArgument("FILE"),
		Long: `Print what the receipt FILE says. Its form is checked and nothing else: neither
who signed it nor whether it still stands. Ends with 6 where it is no receipt.`,
		Example: "  checkfu egress receipt show receipt.json",
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := readBounded("FILE", args[0], evidence.MaxReceiptBytes)
			if err != nil {
				return err
			}
			r, err := evidence.Decode(data)
			if err != nil {
				a.complain(err)
				a.code = report.ExitEvidence
				return nil
			}
			return a.print([]byte("receipt    not verified: see checkfu egress receipt verify\n" + receiptText(r)))
		},
	}
}

// readBounded reads a file of which one byte more than most is enough to refuse
// it.
func readBounded(flag, path string, most int64) ([]byte, error) {
	wrong := func(err error) error {
		return argument.Wrong("%s: expected a file that can be read, got %q (%v)", flag, path, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, wrong(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, wrong(err)
	}
	return data, nil
}
