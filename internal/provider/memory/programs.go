package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// standardPrograms are what every machine has in /bin.
func standardPrograms() map[string]Program {
	return map[string]Program{
		"sh": runShell, "cat": cat, "echo": echo, "printf": printf,
		"true": func(*Call) int { return 0 }, "false": func(*Call) int { return 1 },
		"sleep": sleep, "env": env, "id": id, "pwd": pwd, "uname": uname,
		"head": head, "wc": wc, "sha256sum": sha256sum, "tee": tee, "yes": yes, "seq": seq,
		"nc": nc, "connect": connect, "test": test, "[": test,
		"mkdir": mkdir, "rm": rm, "ln": ln, "mv": mv, "mkfifo": mkfifo, "chmod": chmod,
		"ls": ls, "touch": touch, "readlink": readlink,
	}
}

// workloadID is the user and group id of every program.
const workloadID = 10001

// each runs f over every file that the arguments name, "-" and none being
// standard input.
func (c *Call) each(paths []string, f func(name string, in io.Reader) error) int {
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	code := 0
	for _, path := range paths {
		in, err := c.Stdin, error(nil)
		if path != "-" {
			in, _, err = c.open(path, forRead)
		}
		if err == nil {
			err = f(path, in)
		}
		if err != nil {
			if c.stage.stop != nil {
				return 1
			}
			code = c.fail(1, path+": "+err.Error())
		}
	}
	return code
}

func cat(c *Call) int {
	buf := make([]byte, 32<<10)
	return c.each(c.Args, func(_ string, in io.Reader) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{c.Stdout}, struct{ io.Reader }{in}, buf)
		return err
	})
}

// done turns a failed write into a status.
func (c *Call) done(err error) int {
	if err == nil {
		return 0
	}
	if c.stage.stop != nil {
		return 1
	}
	return c.fail(1, "write error: "+err.Error())
}

func echo(c *Call) int {
	args, end := c.Args, "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	_, err := io.WriteString(c.Stdout, strings.Join(args, " ")+end)
	return c.done(err)
}

func sleep(c *Call) int {
	if len(c.Args) != 1 {
		return c.fail(1, "one number of seconds wanted")
	}
	seconds, err := strconv.ParseFloat(c.Args[0], 64)
	if err != nil || seconds < 0 || math.IsNaN(seconds) {
		return c.fail(1, "invalid time interval '"+c.Args[0]+"'")
	}
	d := forever / 4
	if seconds < d.Seconds() {
		d = time.Duration(seconds * float64(time.Second))
	}
	if c.Sleep(d) != nil {
		return 1
	}
	return 0
}

func env(c *Call) int {
	if len(c.Args) > 0 {
		return c.fail(125, "arguments are unsupported")
	}
	lines := make([]string, 0, len(c.Env))
	for name, value := range c.Env {
		lines = append(lines, name+"="+value+"\n")
	}
	sort.Strings(lines)
	_, err := io.WriteString(c.Stdout, strings.Join(lines, ""))
	return c.done(err)
}

func id(c *Call) int {
	if len(c.Args) != 1 || c.Args[0] != "-u" && c.Args[0] != "-g" {
		return c.fail(1, "only -u or -g is supported")
	}
	_, err := io.WriteString(c.Stdout, strconv.Itoa(workloadID)+"\n")
	return c.done(err)
}

func pwd(c *Call) int {
	_, err := io.WriteString(c.Stdout, c.Dir+"\n")
	return c.done(err)
}

func uname(c *Call) int {
	what := "Linux"
	if len(c.Args) == 1 && c.Args[0] == "-m" {
		what = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[c.stage.job.m.platform.Architecture]
	} else if len(c.Args) != 0 {
		return c.fail(1, "only -m is supported")
	}
	_, err := io.WriteString(c.Stdout, what+"\n")
	return c.done(err)
}

func head(c *Call) int {
	if len(c.Args) < 2 || c.Args[0] != "-c" && c.Args[0] != "-n" {
		return c.fail(1, "-c BYTES or -n LINES wanted")
	}
	left, err := strconv.ParseInt(c.Args[1], 10, 64)
	if err != nil || left < 0 {
		return c.fail(1, "invalid number '"+c.Args[1]+"'")
	}
	return c.each(c.Args[2:], func(_ string, in io.Reader) error {
		buf := make([]byte, 32<<10)
		left := left
		for left > 0 {
			// A line is read byte by byte: what follows it is not ours.
			want := min(left, int64(len(buf)))
			if c.Args[0] == "-n" {
				want = 1
			}
			n, err := in.Read(buf[:want])
			if _, werr := c.Stdout.Write(buf[:n]); werr != nil {
				return werr
			}
			if c.Args[0] == "-c" {
				left -= int64(n)
			} else if n == 1 && buf[0] == '\n' {
				left--
			}
			if err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}

func wc(c *Call) int {
	if len(c.Args) < 1 || c.Args[0] != "-c" && c.Args[0] != "-l" {
		return c.fail(1, "-c or -l wanted")
	}
	buf := make([]byte, 32<<10)
	return c.each(c.Args[1:], func(name string, in io.Reader) error {
		total := 0
		for {
			n, err := in.Read(buf)
			if c.Args[0] == "-c" {
				total += n
			} else {
				total += strings.Count(string(buf[:n]), "\n")
			}
			if err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
		line := strconv.Itoa(total)
		if name != "-" {
			line += " " + name
		}
		_, err := io.WriteString(c.Stdout, line+"\n")
		return err
	})
}

func sha256sum(c *Call) int {
	return c.each(c.Args, func(name string, in io.Reader) error {
		h := sha256.New()
		if _, err := io.Copy(h, in); err != nil {
			return err
		}
		_, err := io.WriteString(c.Stdout, hex.EncodeToString(h.Sum(nil))+"  "+name+"\n")
		return err
	})
}

func tee(c *Call) int {
	outs := []io.Writer{c.Stdout}
	code, mode, args := 0, forWrite, c.Args
	if len(args) > 0 && args[0] == "-a" {
		mode, args = forAppend, args[1:]
	}
	for _, path := range args {
		_, out, err := c.open(path, mode)
		if err != nil {
			code = c.fail(1, path+": "+err.Error())
			continue
		}
		outs = append(outs, out)
	}
	if _, err := io.Copy(io.MultiWriter(outs...), struct{ io.Reader }{c.Stdin}); err != nil {
		return c.done(err)
	}
	return code
}

func yes(c *Call) int {
	line := "y\n"
	if len(c.Args) > 0 {
		line = strings.Join(c.Args, " ") + "\n"
	}
	block := []byte(strings.Repeat(line, max(1, 8192/len(line))))
	for {
		if _, err := c.Stdout.Write(block); err != nil {
			return c.done(err)
		}
	}
}

func seq(c *Call) int {
	if len(c.Args) < 1 || len(c.Args) > 2 {
		return c.fail(1, "[FIRST] LAST wanted")
	}
	first := int64(1)
	last, err := strconv.ParseInt(c.Args[len(c.Args)-1], 10, 64)
	if err == nil && len(c.Args) == 2 {
		first, err = strconv.ParseInt(c.Args[0], 10, 64)
	}
	if err != nil {
		return c.fail(1, "invalid number")
	}
	var block []byte
	for n := first; n <= last; n++ {
		block = append(strconv.AppendInt(block, n, 10), '\n')
		if len(block) >= 8192 || n == last {
			if _, err := c.Stdout.Write(block); err != nil {
				return c.done(err)
			}
			block = block[:0]
		}
		if n == math.MaxInt64 {
			break
		}
	}
	return 0
}

func nc(c *Call) int {
	args := c.Args
	if len(args) > 2 && args[0] == "-w" { // nothing here takes as long
		args = args[2:]
	} else if len(args) > 0 && args[0] == "-z" {
		args = args[1:]
	}
	if len(args) != 2 || len(c.Args) == 2 {
		return c.fail(1, "only -z HOST PORT and -w SECONDS HOST PORT are supported")
	}
	if !c.Connect(args[0], args[1]) {
		return 1
	}
	return 0
}

func connect(c *Call) int {
	if len(c.Args) != 2 {
		return c.fail(2, "HOST PORT wanted")
	}
	if !c.Connect(c.Args[0], c.Args[1]) {
		return c.fail(1, c.Args[0]+":"+c.Args[1]+": denied")
	}
	_, err := io.WriteString(c.Stdout, "connected\n")
	return c.done(err)
}
