package canary

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// region is a mapping of which something is resident or swapped out: what else
// could the process have put there. Whether it may be read by the process does
// not matter; the kernel reads it for us.
type region struct {
	from, to int64
	shared   bool
}

// memory counts in every region.
func (s *scan) memory() (int, error) {
	maps, err := os.Open(filepath.Join(s.dir, "smaps"))
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	regions, err := regions(maps)
	if err != nil {
		return 0, err
	}
	mem, err := os.Open(filepath.Join(s.dir, "mem"))
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	present, err := os.Open(filepath.Join(s.dir, "pagemap"))
	if err != nil {
		return 0, err
	}
	defer present.Close()
	total := 0
	for _, r := range regions {
		p := &pages{mem: mem, at: r.from, to: r.to, read: &s.scanned}
		if r.shared {
			p.present = present
		}
		n, err := s.count(p)
		if err != nil {
			return 0, fmt.Errorf("at %#x: %w", r.from, err)
		}
		total += n
	}
	return total, nil
}

// pages reads a region. A page that is gone meanwhile, or was never one of
// memory (a device's), is left out; all that follows is read.
//
// Of a shared mapping only the pages that the process has are read: to read a hole
// makes a page, on the account of whoever pays for the memory. The sentry of a
// sandbox maps far more than it has, and to look into all of it ended it at its
// limit. What is in the file behind and not in the process is found as an open file.
type pages struct {
	mem     io.ReaderAt
	present io.ReaderAt // /proc/PID/pagemap, or nil to read all
	at, to  int64
	read    *int64
}

// run moves at to the first page that is there, and returns where those that are
// end, or a look at them does. At the end of the region both are that.
func (p *pages) run() (end int64, err error) {
	const entry, there = 8, 3 << 62 // in memory, or swapped out
	page := int64(os.Getpagesize())
	buf := make([]byte, 4096)
	for p.at < p.to {
		n, err := p.present.ReadAt(buf[:min(int64(len(buf)), (p.to-p.at)/page*entry)], p.at/page*entry)
		if n < entry {
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
		for i := 0; i+entry <= n; i += entry {
			if binary.NativeEndian.Uint64(buf[i:])&there == 0 {
				p.at += page
				continue
			}
			end = p.at
			for ; i+entry <= n && binary.NativeEndian.Uint64(buf[i:])&there != 0; i += entry {
				end += page
			}
			return end, nil
		}
	}
	return p.to, nil
}

// Read fills b from the region.
func (p *pages) Read(b []byte) (int, error) {
	for end := p.to; p.at < p.to; {
		if p.present != nil {
			var err error
			if end, err = p.run(); err != nil {
				return 0, err
			}
			if p.at == end {
				break
			}
		}
		n, err := p.mem.ReadAt(b[:min(int64(len(b)), end-p.at)], p.at)
		p.at += int64(n)
		*p.read += int64(n)
		if n > 0 {
			return n, nil
		}
		if !errors.Is(err, unix.EIO) {
			// The kernel's answer for a process without memory is an end of file.
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
		p.at += int64(os.Getpagesize()) - p.at%int64(os.Getpagesize())
	}
	return 0, io.EOF
}

// regions reads /proc/PID/smaps.
// Errors: a text that is not of its form, or more than MaxMemory.
func regions(smaps io.Reader) ([]region, error) {
	var all []region
	var last region
	var resident, sum int64
	flush := func() error {
		if resident > 0 {
			size := last.to - last.from
			if size > MaxMemory-sum {
				return fmt.Errorf("expected at most %d bytes, got more", int64(MaxMemory))
			}
			all, sum = append(all, last), sum+size
		}
		resident = 0
		return nil
	}
	lines := bufio.NewScanner(smaps)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			return nil, errors.New("smaps: an empty line")
		}
		name, isField := strings.CutSuffix(fields[0], ":")
		if !isField {
			if err := flush(); err != nil {
				return nil, err
			}
			from, to, _ := strings.Cut(fields[0], "-")
			begin, err := strconv.ParseInt(from, 16, 64)
			if errors.Is(err, strconv.ErrRange) {
				last = region{} // [vsyscall], the kernel's own, where no file offset leads
				continue
			}
			end, err2 := strconv.ParseInt(to, 16, 64)
			if err != nil || err2 != nil || begin < 0 || end < begin {
				return nil, fmt.Errorf("smaps: expected a region, got %.80q", lines.Text())
			}
			last = region{begin, end, len(fields) > 1 && strings.HasSuffix(fields[1], "s")}
			continue
		}
		if name != "Rss" && name != "Swap" {
			continue
		}
		if len(fields) != 3 || fields[2] != "kB" {
			return nil, fmt.Errorf("smaps: expected kilobytes, got %.80q", lines.Text())
		}
		n, err := strconv.ParseInt(fields[1], 10, 40)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("smaps: expected kilobytes, got %.80q", lines.Text())
		}
		resident += n
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return all, lines.Err()
}
