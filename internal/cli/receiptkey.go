package cli

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
)

// keyBlock is the type of the PEM block of a key: PKCS #8, as other tools write
// and read it.
const keyBlock = "PRIVATE KEY"

func (a *app) receiptKeyCommand() *cobra.Command {
	name := "me"
	cmd := &cobra.Command{
		Use: "keygen FILE", Short: "Make a key that signs receipts", Args: oneArgument("FILE"),
		Long: `Make an Ed25519 key in FILE, which must not be there yet and which only you can
read (PEM, PKCS #8, mode 0600). Printed is a file of attesters that lists the
public half, for checkfu egress receipt verify --attesters.

The reviewed set of this build lists nobody, and this key neither: what it signs
certifies nothing here.`,
		Example: `  checkfu egress receipt keygen receipt.key --name ci > mine.json
  sudo checkfu egress test --topology socket-file --receipt receipt.json --key receipt.key`,
		RunE: func(_ *cobra.Command, args []string) error { return a.makeReceiptKey(args[0], name) },
	}
	cmd.Flags().StringVar(&name, "name", name, "name of the attester in the file that is printed")
	return cmd
}

func (a *app) makeReceiptKey(path, name string) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	set, err := canonical.Encode(evidence.Attesters{Schema: evidence.AttestersSchema, Attesters: []evidence.Attester{{Name: name, Key: hex.EncodeToString(public)}}})
	if err != nil {
		return err
	}
	if _, err := evidence.ParseAttesters(set); err != nil {
		return argument.Wrong("--name: %v", err)
	}
	data, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return argument.Wrong("FILE: expected a name that is free, in a directory that can be written, got %q (%v)", path, err)
	}
	err = errors.Join(pem.Encode(file, &pem.Block{Type: keyBlock, Bytes: data}), file.Sync(), file.Close())
	if err == nil {
		err = a.print(append(set, '\n'))
	}
	if err != nil {
		// Half a key, or one whose public half nobody has seen, is none.
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// maxKeyBytes bounds the file of a key.
const maxKeyBytes = 4 << 10

// readReceiptKey reads a key from a file that only this user can read. No link is
// followed.
// Errors: *argument.Error, without a byte of the file.
func readReceiptKey(flag, path string) (ed25519.PrivateKey, error) {
	wrong := func(expected, got string) (ed25519.PrivateKey, error) {
		return nil, argument.Wrong("%s: expected %s, got %s (%q)", flag, expected, got, path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return wrong("a file that can be read", err.Error())
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return wrong("a file that can be read", err.Error())
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return wrong("a regular file", "another kind")
	case !ok || int(owner.Uid) != os.Geteuid() && !throughSudo(owner.Uid):
		return wrong("a file of your own", "somebody else's")
	case info.Mode().Perm()&0o077 != 0:
		return wrong("mode 0600", fmt.Sprintf("%#o", info.Mode().Perm()))
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyBytes))
	if err != nil {
		return wrong("a file that can be read", err.Error())
	}
	const form = "a key as checkfu egress receipt keygen makes it: Ed25519, PKCS #8, PEM"
	block, rest := pem.Decode(data)
	if block == nil || block.Type != keyBlock || len(block.Headers) > 0 || len(rest) > 0 {
		return wrong(form, "another file")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return wrong(form, "another file")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return wrong(form, fmt.Sprintf("%T", parsed))
	}
	return key, nil
}

// throughSudo reports whether a user is the one who called sudo: the matrix needs
// root, and a key its person.
func throughSudo(uid uint32) bool {
	return os.Geteuid() == 0 && os.Getenv("SUDO_UID") == fmt.Sprint(uid)
}
