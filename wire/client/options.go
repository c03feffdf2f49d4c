package client

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Options say how a provider is reached: one enrollment.
type Options struct {
	// Base is where the endpoints lie: https://host[:port][/path],
	// http://… for an address of this machine only, or unix:PATH.
	Base string
	// Token is the bearer token, "" where certificates alone authenticate.
	Token string
	// Pin is the SHA-256 of the server's public key (its
	// SubjectPublicKeyInfo). Where it is set, it alone decides who the server
	// is, so that a provider needs no authority: neither a chain nor a name is
	// looked at, only the certificate's period.
	Pin sandbox.Digest
	// Roots are the authorities that are trusted where there is no Pin; nil
	// for the system's.
	Roots *x509.CertPool
	// Certificate is the client's own, nil for none.
	Certificate *tls.Certificate
	// Lease fences calls that name no instance of this client: sweeps,
	// teardowns of what others made. The zero value is a random lease.
	Lease wire.Lease
	// Deadline bounds a call whose context has no deadline. 0 is 10 minutes.
	Deadline time.Duration
	// Wait is how long the server may hold one request, at most 30 s. 0 is
	// 20 s, or what the server says it holds if that is less.
	Wait time.Duration
	// Heartbeat is the longest silence of a live process's stream, 1 to 30 s.
	// 0 is 10 s.
	Heartbeat time.Duration
	// Processes is how many live processes are expected at once; it sizes the
	// pool of connections. 0 is 64.
	Processes int
}

// OptionError says which option is wrong. It never repeats a token.
type OptionError struct{ Option, Expected, Got string }

// Error is "option: expected …, got …".
func (e *OptionError) Error() string {
	return e.Option + ": expected " + e.Expected + ", got " + strconv.QuoteToASCII(e.Got)
}

const (
	defaultDeadline  = 10 * time.Minute
	defaultProcesses = 64
	maxProcesses     = 1 << 16
)

// settle checks o and fills in what was left out.
func (o Options) settle() (Options, target, error) {
	t, err := parseBase(o.Base)
	if err != nil {
		return o, t, err
	}
	if o.Lease == (wire.Lease{}) {
		o.Lease.ID = "client." + strings.TrimPrefix(string(wire.NewAttachID()), "at_")
	}
	o.Deadline = either(o.Deadline, defaultDeadline)
	o.Wait = either(o.Wait, wire.DefaultWaitMS*time.Millisecond)
	o.Heartbeat = either(o.Heartbeat, wire.DefaultHeartbeatMS*time.Millisecond)
	o.Processes = either(o.Processes, defaultProcesses)
	for _, c := range []struct {
		ok                    bool
		option, expected, got string
	}{
		{o.Token == "" || wire.ValidToken(o.Token), "token", "32 to 512 characters of [A-Za-z0-9._~+/=-]", "another form"},
		{o.Pin == "" || o.Pin.Valid(), "pin", "sha256: and 64 lower-case hex digits", string(o.Pin)},
		{o.Pin == "" || t.secure, "pin", "an https base", o.Base},
		{o.Certificate == nil || t.secure, "certificate", "an https base", o.Base},
		{sandbox.CheckInstanceID("lease", sandbox.InstanceID(o.Lease.ID)) == nil && o.Lease.Epoch >= 0 && o.Lease.Epoch <= sandbox.MaxInteger,
			"lease", "an identity, and an epoch from 0 to 2^53-1", o.Lease.ID},
		{o.Deadline > 0 && o.Deadline <= wire.MaxDeadline, "deadline", "up to 7 days", o.Deadline.String()},
		{o.Wait >= time.Millisecond && o.Wait <= wire.MaxWaitMS*time.Millisecond, "wait", "1 ms to 30 s", o.Wait.String()},
		{o.Heartbeat >= wire.MinHeartbeatMS*time.Millisecond && o.Heartbeat <= wire.MaxHeartbeatMS*time.Millisecond,
			"heartbeat", "1 s to 30 s", o.Heartbeat.String()},
		{o.Processes > 0 && o.Processes <= maxProcesses, "processes", "1 to 65536", strconv.Itoa(o.Processes)},
	} {
		if !c.ok {
			return o, t, &OptionError{c.option, c.expected, c.got}
		}
	}
	return o, t, nil
}

func either[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// target is a parsed base.
type target struct {
	url    *url.URL // its path has no slash at the end
	socket string   // of unix:
	secure bool
}

func parseBase(base string) (target, error) {
	refuse := func(expected string) (target, error) { return target{}, &OptionError{"base", expected, base} }
	if path, ok := strings.CutPrefix(base, "unix:"); ok {
		if path == "" || strings.IndexByte(path, 0) >= 0 {
			return refuse("unix: and a path")
		}
		// The host is only a name in a header.
		return target{url: &url.URL{Scheme: "http", Host: "localhost"}, socket: path}, nil
	}
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return refuse("https://…, http://… or unix:PATH")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return refuse("no user, no query and no fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return refuse("https, or http to an address of this machine")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return target{url: u, secure: u.Scheme == "https"}, nil
}

// at is the address of an endpoint.
func (t target) at(e wire.Endpoint) *url.URL {
	u := *t.url
	u.Path += e.Path()
	if u.RawPath != "" {
		u.RawPath += e.Path()
	}
	return &u
}

// loopback is what http may name. Whether localhost is what it says is looked
// at again once it is connected.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

func local(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}
