package cli

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/egress/matrix"
)

// sealing is what a receipt is made with, settled before anything is run.
type sealing struct {
	path     string
	provider string
	key      ed25519.PrivateKey
}

// sealing reads what the flags say of a receipt; nil is none.
// Errors: *argument.Error.
func (f *egressFlags) sealing(o matrix.Options) (*sealing, error) {
	switch {
	case f.receipt == "" && f.key == "":
		return nil, nil
	case f.receipt == "":
		return nil, argument.Wrong("--key: expected --receipt beside it")
	case f.key == "":
		return nil, argument.Wrong("--receipt: expected --key beside it; make one with: checkfu egress receipt keygen FILE")
	case f.receipt == "-":
		return nil, argument.Unexpected("--receipt", "a file, which gets its signature beside it", f.receipt)
	case len(f.names) != 1:
		return nil, argument.Wrong("--receipt: expected one --provider, which it is about, got %d", len(f.names))
	case len(o.Cases) > 0 || o.NoMutants || len(o.Configurations) > 0:
		return nil, argument.Wrong("--receipt: expected all cases, configurations and mutants, got a part")
	case len(o.Topologies) > 0 && !slices.Contains(o.Topologies, matrix.SealedTopology):
		return nil, argument.Unexpected("--topology", string(matrix.SealedTopology)+", of which a receipt is", fmt.Sprint(o.Topologies))
	}
	for _, path := range []string{f.receipt, f.receipt + ".sig"} {
		if err := checkSink("--receipt", path); err != nil {
			return nil, err
		}
	}
	if err := f.apart(); err != nil {
		return nil, err
	}
	key, err := readReceiptKey("--key", f.key)
	return &sealing{f.receipt, f.names[0], key}, err
}

// apart holds the files of a sealed run apart: a report would else be written over
// the key, or a receipt over another of the same name, which nobody would tell from
// the receipt of a run that showed too little.
// Errors: *argument.Error.
func (f *egressFlags) apart() error {
	files := []struct{ flag, path string }{
		{"--key", f.key}, {"--receipt", f.receipt}, {"--receipt (its signature)", f.receipt + ".sig"}, {"--junit", f.junit},
	}
	for i, file := range files {
		for _, before := range files[:i] {
			if file.path != "" && file.path != "-" && sameFile(before.path, file.path) {
				return argument.Unexpected(file.flag, "another file than that of "+before.flag, file.path)
			}
		}
	}
	for _, file := range files[1:3] {
		if _, err := os.Lstat(file.path); !errors.Is(err, os.ErrNotExist) {
			return argument.Unexpected(file.flag, "a name that is free", file.path)
		}
	}
	return nil
}

// sameFile reports whether two paths are one file, or would be once it is there.
func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	same := func(a, b string) bool {
		one, err := os.Stat(a)
		other, otherErr := os.Stat(b)
		return err == nil && otherErr == nil && os.SameFile(one, other)
	}
	return same(a, b) || filepath.Base(a) == filepath.Base(b) && same(filepath.Dir(a), filepath.Dir(b))
}

// seal writes receipt and signature, or says which facts the run did not show and
// writes nothing. A run that is no pass never has a receipt.
// Errors: *matrix.UnprovenError; of package evidence; of the files.
func (s *sealing) seal(a *app, r *matrix.Report) error {
	receipt, err := r.Receipt(s.provider, time.Now())
	if err != nil {
		return err
	}
	data, err := evidence.Encode(receipt)
	if err != nil {
		return err
	}
	signature, err := evidence.Seal(receipt, s.key)
	if err != nil {
		return err
	}
	if err := a.writeDocument(s.path, data); err != nil {
		return err
	}
	if err := a.writeDocument(s.path+".sig", signature); err != nil {
		return errors.Join(err, os.Remove(s.path)) // one without the other is none
	}
	fmt.Fprintf(a.stderr, "receipt %s: sealed by %s; it certifies nothing here, where that key is not listed\n",
		argument.Printable(s.path), hex.EncodeToString(s.key[ed25519.SeedSize:]))
	return nil
}
