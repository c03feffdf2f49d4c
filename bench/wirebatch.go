package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// A batch is the largest of the contract: eight files of 16 MiB.
const (
	batchFiles   = 8
	fetchCommand = "fetch-batch" // what the child is called with
	fetches      = 3
)

// wireBatch is the memory of who reads a whole batch, beyond what it held
// before, in a process of its own: the results, and what the wire adds.
func wireBatch(ctx context.Context, w *world) (err error) {
	content := bytes.Repeat([]byte("0123456789abcdef"), fileBytes/16)
	files := map[string][]byte{}
	for i := range batchFiles {
		files["f"+strconv.Itoa(i)] = content
	}
	x, err := w.wireMemory(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	x.q.Profile.ResourceLimits.DiskBytes = 256 << 20
	id, end, err := x.instance(ctx, x.over, files, true)
	if err != nil {
		return err
	}
	defer end()
	raw, err := newRawBody(bytes.Repeat(content, batchFiles), false)
	if err != nil {
		return err
	}
	defer raw.close()
	// Run from the bench's directory, whose name the census looks for.
	program := filepath.Join(w.dir, "fetch")
	if err := copyFile(self(), program); err != nil {
		return err
	}
	defer os.Remove(program)
	var peaks, times [2]samples
	for range min(w.n, 5) {
		for i, args := range [][]string{{x.base, string(id)}, {raw.url}} {
			peak, took, err := fetched(ctx, program, args)
			if err != nil {
				return err
			}
			peaks[i], times[i] = append(peaks[i], peak), append(times[i], took)
		}
	}
	w.rep.add(
		line{what: "wire: peak memory of a reader of a batch of 128 MiB", note: "8 files, results of 134 MB among it; the worst of 3 batches in one process",
			unit: "MB", ours: peaks[0], rawName: "HTTP body", raw: peaks[1]},
		line{what: "wire: a batch of 128 MiB", unit: "ms", ours: times[0], rawName: "HTTP body", raw: times[1]},
	)
	return nil
}

// fetched runs one child and returns what it says: MB and ms.
func fetched(ctx context.Context, program string, args []string) (peak, took float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	c := exec.CommandContext(ctx, program, append([]string{fetchCommand}, args...)...)
	c.Stderr = os.Stderr
	said, err := c.Output()
	if err == nil {
		_, err = fmt.Sscan(string(said), &peak, &took)
	}
	return peak, took, err
}

// dispatchFetch acts as the child: it fetches the batch from args, and prints
// how far its memory rose and what a batch took.
func dispatchFetch() {
	if len(os.Args) < 3 || os.Args[1] != fetchCommand {
		return
	}
	peak, took, err := fetch(os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Println(peak, took)
	os.Exit(0)
}

func fetch(args []string) (peak, took float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandBound)
	defer cancel()
	read := func() error { return fetchRaw(ctx, args[0]) }
	if len(args) == 2 {
		c, err := client.Dial(ctx, client.Options{Base: args[0], Token: benchToken, Lease: wire.Lease{ID: "bench", Epoch: 1}})
		if err != nil {
			return 0, 0, err
		}
		defer c.Close()
		read = func() error { return fetchWire(ctx, c, sandbox.InstanceID(args[1])) }
	}
	var all samples
	for range fetches {
		debug.FreeOSMemory()
		// 5 lets the peak begin again.
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			return 0, 0, err
		}
		before, err := status("VmRSS")
		if err != nil {
			return 0, 0, err
		}
		begin := time.Now()
		if err := read(); err != nil {
			return 0, 0, err
		}
		all = append(all, millis(time.Since(begin)))
		high, err := status("VmHWM")
		if err != nil {
			return 0, 0, err
		}
		peak = max(peak, high-before)
	}
	return peak, all.median(), nil
}

func fetchWire(ctx context.Context, c *client.Client, id sandbox.InstanceID) error {
	q := sandbox.FilesRead{AllowedRoot: repoPath, AggregateMaximumBytes: batchFiles * fileBytes}
	for i := range batchFiles {
		q.Files = append(q.Files, sandbox.FileMember{Path: repoPath + "/f" + strconv.Itoa(i), MaximumBytes: fileBytes})
	}
	results, err := c.ReadFiles(ctx, id, q)
	if err == nil && len(results) != batchFiles {
		err = fmt.Errorf("%d files", len(results))
	}
	runtime.KeepAlive(results)
	return err
}

func fetchRaw(ctx context.Context, url string) error {
	r := &rawBody{url: url, http: &http.Transport{DisableCompression: true}}
	defer r.http.CloseIdleConnections()
	var results [batchFiles][]byte
	err := r.do(ctx, http.MethodGet, nil, func(body io.Reader) error {
		for i := range results {
			results[i] = make([]byte, fileBytes)
			if _, err := io.ReadFull(body, results[i]); err != nil {
				return err
			}
		}
		return nil
	})
	runtime.KeepAlive(results)
	return err
}

// status is one line of the kernel's account of this process, in MB.
func status(name string) (float64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, _ := strings.Cut(s.Text(), ":"); key == name {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/self/status", name)
}
