package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Inputs are what a keeper is started with. They come over the cord: in no
// argument, and in no environment.
type Inputs struct {
	Dir       string            `json:"dir"` // the state directory, absolute
	SessionID string            `json:"session_id"`
	Provider  string            `json:"provider"`
	LeaseID   string            `json:"lease_id"`
	ExpiresAt sandbox.Timestamp `json:"expires_at"`
	// Model is the control of the model gateway that the machine's lease is of, a
	// path; "" is no model route.
	Model string `json:"model,omitzero"`
	// Registries is Record.Registries.
	Registries string `json:"registries,omitzero"`
	// KeepMillis is Record.KeepMillis.
	KeepMillis int64 `json:"keep_ms,omitzero"`
	// Live is Record.Live.
	Live bool `json:"live,omitzero"`
	// Cold resumes the files of a live session alone.
	Cold bool `json:"cold,omitzero"`
	// Resume takes up the session that is there, paused, and makes none.
	Resume bool `json:"resume,omitzero"`
}

func (in Inputs) validate() error {
	switch {
	case in.Dir == "" || in.Dir[0] != '/':
		return &sandbox.Invalid{Field: "dir", Expected: "an absolute path", Got: in.Dir}
	case in.Provider == "":
		return &sandbox.Invalid{Field: "provider", Expected: "a name", Got: ""}
	case !in.ExpiresAt.Valid():
		return &sandbox.Invalid{Field: "expires_at", Expected: "a timestamp", Got: string(in.ExpiresAt)}
	case in.Model != "" && in.Model[0] != '/':
		return &sandbox.Invalid{Field: "model", Expected: "an absolute path, or none", Got: in.Model}
	case in.Registries != "" && in.Registries[0] != '/':
		return &sandbox.Invalid{Field: "registries", Expected: "an absolute path, or none", Got: in.Registries}
	case in.Live && in.KeepMillis == 0:
		return &sandbox.Invalid{Field: "live", Expected: "a session that keeps what is in it", Got: "one that does not"}
	case in.KeepMillis < 0 || in.KeepMillis > MaxKeep.Milliseconds() || in.Resume && in.KeepMillis == 0:
		return &sandbox.Invalid{Field: "keep_ms", Expected: "a time to keep it, at most " + MaxKeep.String(), Got: strconv.FormatInt(in.KeepMillis, 10)}
	}
	if err := CheckID(in.SessionID); err != nil {
		return err
	}
	return sandbox.CheckInstanceID("lease_id", sandbox.InstanceID(in.LeaseID))
}

// said is one line of the cord, in canonical JSON.
type said struct {
	Word   word    `json:"word"`
	Inputs *Inputs `json:"inputs,omitzero"` // with begin
	Kind   Kind    `json:"kind,omitzero"`   // with failed
	Text   string  `json:"text,omitzero"`   // with failed
}

// word is what is said over the cord: begin and keep by the starter, the others
// by the keeper.
type word string

const (
	begin  word = "begin"
	ready  word = "ready"
	keep   word = "keep"
	kept   word = "kept"
	failed word = "failed"
)

// maxSaid bounds one line.
const maxSaid = 64 << 10

// cord is one end of the socket between a keeper and its starter. Whoever closes
// it, or dies, is noticed by the other.
type cord struct {
	net.Conn
	lines *bufio.Reader
}

// cordFD is where a keeper finds its end.
const cordFD = 3

// newCord takes f over.
func newCord(f *os.File) (*cord, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return &cord{c, bufio.NewReaderSize(c, maxSaid)}, nil
}

// cordPair makes both ends.
func cordPair() (ours *cord, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "cord")
	if ours, err = newCord(os.NewFile(uintptr(pair[0]), "cord")); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// heldCord is the keeper's own end.
// Errors: *Error with ByHand where this process was not started as a keeper.
func heldCord() (*cord, error) {
	byHand := &Error{Kind: ByHand}
	if kind, err := unix.GetsockoptInt(cordFD, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || kind != unix.AF_UNIX {
		return nil, byHand
	}
	peer, err := unix.GetsockoptUcred(cordFD, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(peer.Uid) != os.Geteuid() {
		return nil, byHand
	}
	unix.CloseOnExec(cordFD) // machines must not hold it
	c, err := newCord(os.NewFile(cordFD, "cord"))
	if err != nil {
		return nil, byHand
	}
	return c, nil
}

// say sends one line, within a bound.
func (c *cord) say(m said) error {
	body, err := canonical.Encode(m)
	if err != nil {
		return err
	}
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err = c.Write(append(body, '\n'))
	return err
}

// hear waits for one line until ctx is done.
func (c *cord) hear(ctx context.Context) (m said, err error) {
	_ = c.SetReadDeadline(time.Time{}) // an earlier ctx may have left one
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(cut); _ = c.SetReadDeadline(time.Now()) })
	defer func() {
		if !stop() {
			<-cut // else it would cut the next one short
		}
	}()
	line, err := c.lines.ReadSlice('\n')
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return m, err
	}
	return parseSaid(line[:len(line)-1])
}

func parseSaid(line []byte) (m said, err error) {
	if err := canonical.Decode(line, &m); err != nil {
		return said{}, err
	}
	switch m.Word {
	case begin:
		if m.Inputs == nil {
			return said{}, &sandbox.Invalid{Field: "inputs", Expected: "inputs", Got: "none"}
		}
		if err := m.Inputs.validate(); err != nil {
			return said{}, err
		}
	case ready, keep, kept, failed:
	default:
		return said{}, fmt.Errorf("the word %.40q", m.Word)
	}
	return m, nil
}

// fail tells the starter why not.
func (c *cord) fail(err error) {
	m := said{Word: failed, Kind: Refused, Text: err.Error()}
	if e, ok := errors.AsType[*Error](err); ok {
		m.Kind, m.Text = e.Kind, ""
		if e.Err != nil {
			m.Text = e.Err.Error()
		}
	}
	m.Text = strings.ToValidUTF8(m.Text[:min(len(m.Text), maxSaid/8)], "?")
	_ = c.say(m) // a starter that is gone needs no answer
}

// failure is what the keeper's word failed means to its starter.
func (m said) failure(id string) error {
	e := &Error{Kind: m.Kind, SessionID: id}
	if m.Text != "" {
		e.Err = errors.New(m.Text)
	}
	return e
}
