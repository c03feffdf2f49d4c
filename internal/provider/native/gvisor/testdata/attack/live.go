package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const liveAddress = "127.0.0.1:7000"

// live counts, holds megabytes of memory that it checks, and whatever hold names, and
// tells whoever asks.
func live(megabytes, hold string) {
	began := time.Now()
	n, err := strconv.Atoi(megabytes)
	if err != nil {
		os.Exit(2)
	}
	memory := make([]byte, n<<20)
	pattern := mathrand.NewChaCha8([32]byte{7})
	pattern.Read(memory)
	seeded := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), 1)) // as a program seeds itself
	urandom, err := os.Open("/dev/urandom")
	if err != nil {
		fail(err)
	}
	var held []*os.File
	var connected []net.Conn
	for _, what := range strings.Split(hold, ",") {
		var f *os.File
		switch what {
		case "deleted":
			if f, err = os.OpenFile("/home/deleted", os.O_CREATE|os.O_RDWR, 0o600); err == nil {
				_, err = f.WriteString("of a deleted file")
			}
			if err == nil {
				err = os.Remove("/home/deleted")
			}
			held = append(held, f)
		case "open":
			if f, err = os.OpenFile("/home/open", os.O_CREATE|os.O_RDWR, 0o600); err == nil {
				_, err = f.WriteString("of an open file")
			}
			held = append(held, f)
		case "socket":
			err = greet("unix", "/home/socket")
		case "abstract":
			err = greet("unix", "@abstract")
		case "connected":
			connected = []net.Conn{echoing("tcp", "127.0.0.1:7001"), echoing("unix", "/home/echo")}
		case "fifo":
			if err = syscall.Mkfifo("/home/fifo", 0o600); err == nil {
				f, err = os.OpenFile("/home/fifo", os.O_RDWR, 0)
				defer f.Close() // held, not read
			}
		}
		if err != nil {
			fail(err)
		}
	}
	var count atomic.Int64
	go func() {
		for range time.Tick(time.Millisecond) {
			count.Add(1)
		}
	}()
	l, err := net.Listen("tcp", liveAddress)
	if err != nil {
		fail(err)
	}
	fmt.Println("live")
	for {
		c, err := l.Accept()
		if err != nil {
			fail(err)
		}
		whole := make([]byte, len(memory))
		mathrand.NewChaCha8([32]byte{7}).Read(whole)
		var id, raw [16]byte
		rand.Read(id[:])
		io.ReadFull(urandom, raw[:])
		text := ""
		for _, f := range held {
			b := make([]byte, 64)
			n, _ := f.ReadAt(b, 0)
			text += string(b[:n])
		}
		for _, e := range connected {
			e.SetDeadline(time.Now().Add(20 * time.Second))
			b := make([]byte, 8)
			if _, err := e.Write([]byte(e.RemoteAddr().Network())); err != nil {
				text += err.Error()
			}
			n, err := e.Read(b)
			if text += string(b[:n]); err != nil {
				text += err.Error()
			}
		}
		host, _ := os.Hostname()
		fmt.Fprintf(c, "count=%d whole=%t uuid=%x urandom=%x seeded=%x wall=%d since=%d pid=%d host=%s held=%q",
			count.Load(), bytes.Equal(whole, memory), id, raw, seeded.Uint64(), time.Now().UnixMilli(), time.Since(began).Milliseconds(), os.Getpid(), host, text)
		c.Close()
	}
}

// greet says hello to whoever connects.
func greet(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				fail(err)
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	return nil
}

// echoing is a connection to who says again what it is told.
func echoing(network, address string) net.Conn {
	l, err := net.Listen(network, address)
	if err != nil {
		fail(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			fail(err)
		}
		io.Copy(c, c)
	}()
	c, err := net.Dial(network, address)
	if err != nil {
		fail(err)
	}
	return c
}

func ask() {
	c, err := net.Dial("tcp", liveAddress)
	if err != nil {
		fail(err)
	}
	if _, err := io.Copy(os.Stdout, c); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}
