package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// meetTime bounds how long a target may take until it has said what it is.
const meetTime = 10 * time.Second

// placeholder is the image where nobody names one: a provider that has images
// will not know it, one that needs none will not mind.
var placeholder = "image.invalid/placeholder@" + canonical.Digest([]byte("checkfu placeholder image"))

// belongs refuses flags that say nothing of a kind of target.
// Errors: *argument.Error.
func (f *conformanceFlags) belongs(kind string) error {
	for _, each := range []struct {
		flag, value string
		kinds       []string
	}{
		{"--token-file", f.tokenFile, []string{"unix", "http", "https"}},
		{"--tls-pin", f.pin, []string{"https"}},
		{"--client-cert", f.cert, []string{"https"}},
		{"--client-key", f.key, []string{"https"}},
		{"--listed", f.listed, []string{"unix", "http", "https", "exec"}},
		{"--unlisted", f.unlisted, []string{"unix", "http", "https", "exec"}},
	} {
		if each.value != "" && !slices.Contains(each.kinds, kind) {
			return argument.Wrong("%s: expected a target of %s: beside it, got %s:", each.flag, strings.Join(each.kinds, ":, "), kind)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return argument.Wrong("--client-cert, --client-key: expected both or neither")
	}
	_, err := f.named()
	return err
}

// named is the network of --listed and --unlisted, nil where there are none.
// Errors: *argument.Error.
func (f *conformanceFlags) named() (*lab.Named, error) {
	if f.listed == "" && f.unlisted == "" {
		return nil, nil
	}
	if f.listed == "" || f.unlisted == "" {
		return nil, argument.Wrong("--listed, --unlisted: expected both or neither")
	}
	listed, err := argument.Destination("--listed", f.listed)
	if err != nil {
		return nil, err
	}
	unlisted, err := argument.Destination("--unlisted", f.unlisted)
	if err != nil {
		return nil, err
	}
	if listed.Host == unlisted.Host {
		return nil, argument.Unexpected("--unlisted", "another host than --listed names", f.unlisted)
	}
	return lab.NewNamed(listed, unlisted), nil
}

// openWire makes what is served at base a target.
// Errors: *argument.Error; what kept it from being met.
func openWire(ctx context.Context, base string, f *conformanceFlags, patience time.Duration) (conformance.Target, func(), error) {
	o := client.Options{Base: base, Pin: sandbox.Digest(f.pin)}
	if f.tokenFile != "" {
		tokens, err := readTokens(f.tokenFile, false)
		if err != nil {
			return conformance.Target{}, nil, err
		}
		o.Token = tokens[0]
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return conformance.Target{}, nil, argument.Wrong("--client-cert, --client-key: %v", err)
		}
		o.Certificate = &pair
	}
	c, err := meet(ctx, o, min(patience, meetTime))
	if err != nil {
		return conformance.Target{}, nil, err
	}
	target, closeLab, err := remoteTarget(ctx, c, f, onThisHost(base))
	if err != nil {
		_ = c.Close()
		return conformance.Target{}, nil, err
	}
	target.Wire = byHand(o)
	return target, func() { _ = c.Close(); closeLab() }, nil
}

// byHand is the way to what o names without a client.
func byHand(o client.Options) *conformance.Wire {
	host, path := "localhost", ""
	if u, err := url.Parse(o.Base); err == nil && u.Host != "" {
		host, path = u.Host, strings.TrimRight(u.EscapedPath(), "/")
	}
	return &conformance.Wire{Host: host, Path: path, Token: o.Token, Dial: func(ctx context.Context) (net.Conn, error) {
		return client.Connect(ctx, o)
	}}
}

// meet connects within limit. Somebody who answers, and is no provider, is
// found out by then too.
// Errors: *argument.Error for an option that cannot be; why it was not met.
func meet(ctx context.Context, o client.Options, limit time.Duration) (*client.Client, error) {
	// The end of a context hides what was met; the end of a deadline does not.
	first := o
	first.Deadline = limit
	c, err := client.Dial(ctx, first)
	if err == nil {
		_ = c.Close()
		c, err = client.Dial(ctx, o)
	}
	switch e := err.(type) {
	case nil:
		return c, nil
	case *client.OptionError:
		if e.Option == "base" {
			return nil, argument.Unexpected("TARGET", e.Expected, e.Got)
		}
		return nil, argument.Unexpected("--tls-pin", e.Expected, e.Got)
	}
	return nil, notMet(ctx, o.Base, limit, err)
}

// notMet says why nobody was met, for a person who has to find out what to do.
func notMet(ctx context.Context, base string, limit time.Duration, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed, ok := errors.AsType[*sandbox.Error](err); ok && failed.Err != nil {
		err = failed.Err
	}
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		switch refused.Tag {
		case wire.TagUnauthenticated:
			return fmt.Errorf("%s does not know its caller: expected the token, or certificate, that it takes (--token-file, --client-cert): %w", base, refused)
		case wire.TagForbidden:
			return fmt.Errorf("%s refuses its caller: expected a certificate that it takes (--client-cert): %w", base, refused)
		}
	}
	if peer, ok := errors.AsType[*client.PeerError](err); ok {
		return fmt.Errorf("%s is answered by another than --tls-pin names: %w", base, peer)
	}
	if chain, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s shows a certificate that nobody vouches for (pin its key with --tls-pin): %w", base, chain)
	}
	return fmt.Errorf("%s: no provider of this wire within %v: %w", base, limit, err)
}

// remoteTarget is a target behind a client. near says that it stands on this
// host: then the lab's destinations are where its machines could reach them.
func remoteTarget(ctx context.Context, c *client.Client, f *conformanceFlags, near bool) (conformance.Target, func(), error) {
	target := conformance.Target{Provider: c, Remote: true}
	envelope, err := c.Capabilities(ctx)
	if err != nil {
		return target, nil, err
	}
	if target.Image, err = imageFor(envelope, f.image); err != nil {
		return target, nil, err
	}
	if named, err := f.named(); named != nil || err != nil {
		target.Network = named
		return target, func() {}, err
	}
	if !near || f.plan {
		return target, func() {}, nil
	}
	network, err := lab.Open()
	if err != nil {
		return target, nil, err
	}
	target.Network = network
	return target, func() { _ = network.Close() }, nil
}

// imageFor is the image that was named, else the first that the envelope is
// fixed to, else one that nobody has.
// Errors: *argument.Error.
func imageFor(envelope sandbox.Capabilities, named string) (string, error) {
	fixed := envelope.ImageMode == sandbox.ImageFixed
	switch {
	case named != "" && sandbox.ImageDigest(named) == "":
		return "", argument.Unexpected("--image", "NAME@sha256:DIGEST for a provider over a wire, which has its own store", named)
	case named != "" && fixed && !slices.Contains(envelope.FixedBaseImages, named):
		return "", argument.Unexpected("--image", "one of the fixed images of the envelope", named)
	case named != "":
		return named, nil
	case fixed && len(envelope.FixedBaseImages) > 0:
		return envelope.FixedBaseImages[0], nil
	}
	return placeholder, nil
}

// onThisHost reports whether base is an address of this very machine.
func onThisHost(base string) bool {
	if strings.HasPrefix(base, "unix:") {
		return true
	}
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if isLoopback(host) {
		return true
	}
	ours, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(ours, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(net.ParseIP(host))
	})
}
