package memory

import (
	"io"
	"strconv"
	"strings"
)

func (c *Call) tree() *tree { return c.stage.job.m.tree }

// paths runs f over the arguments that follow options, which must be among
// allowed, and reports each failure as "NAME: cannot VERB 'PATH': …".
func (c *Call) paths(verb, allowed string, f func(options, path string) error) int {
	options, args := c.options(allowed)
	if args == nil {
		return c.fail(1, "unsupported option or missing operand")
	}
	code := 0
	for _, path := range args {
		if err := f(options, c.abs(path)); err != nil {
			code = c.fail(1, "cannot "+verb+" '"+path+"': "+err.Error())
		}
	}
	return code
}

// options takes the leading option letters; args is nil if one is not allowed
// or nothing follows.
func (c *Call) options(allowed string) (options string, args []string) {
	args = c.Args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		if args[0] == "--" {
			args = args[1:]
			break
		}
		for _, letter := range args[0][1:] {
			if !strings.ContainsRune(allowed, letter) {
				return "", nil
			}
		}
		options += args[0][1:]
		args = args[1:]
	}
	if len(args) == 0 {
		return "", nil
	}
	return options, args
}

func mkdir(c *Call) int {
	return c.paths("create directory", "p", func(options, path string) error {
		if options != "" {
			return c.tree().addAll(path)
		}
		return c.tree().add(path, newDirectory(0o755))
	})
}

func mkfifo(c *Call) int {
	return c.paths("create fifo", "", func(_, path string) error {
		return c.tree().add(path, &node{kind: fifo, mode: 0o644})
	})
}

func touch(c *Call) int {
	return c.paths("touch", "", func(_, path string) error {
		err := c.tree().add(path, &node{mode: 0o644})
		if err == errExists {
			return nil
		}
		return err
	})
}

func rm(c *Call) int {
	return c.paths("remove", "rf", func(options, path string) error {
		err := c.tree().remove(path, strings.Contains(options, "r"))
		if err == errNotFound && strings.Contains(options, "f") {
			return nil
		}
		return err
	})
}

func chmod(c *Call) int {
	if len(c.Args) < 2 {
		return c.fail(1, "MODE FILE wanted")
	}
	bits, err := strconv.ParseUint(c.Args[0], 8, 9)
	switch {
	case c.Args[0] == "+x":
	case err != nil:
		return c.fail(1, "invalid mode: '"+c.Args[0]+"'")
	}
	code := 0
	for _, path := range c.Args[1:] {
		mode := uint32(bits)
		n, _, err := c.tree().lookup(c.abs(path), true)
		if err == nil {
			if c.Args[0] == "+x" {
				mode = n.mode | 0o111
			}
			err = c.tree().chmod(c.abs(path), mode)
		}
		if err != nil {
			code = c.fail(1, "cannot access '"+path+"': "+err.Error())
		}
	}
	return code
}

// ln makes symbolic links: ln -s[f][n] TARGET PATH.
func ln(c *Call) int {
	options, args := c.options("sfn")
	if len(args) != 2 || !strings.Contains(options, "s") {
		return c.fail(1, "only -s TARGET PATH is supported")
	}
	if args[0] == "" {
		return c.fail(1, errNotFound.Error())
	}
	link := &node{kind: symlink, mode: 0o777, target: args[0]}
	path := c.abs(args[1])
	if n, _, err := c.tree().lookup(path, false); err == nil && strings.Contains(options, "f") && n.kind != directory {
		if err := c.tree().remove(path, false); err != nil {
			return c.fail(1, "cannot remove '"+args[1]+"': "+err.Error())
		}
	}
	if err := c.tree().add(path, link); err != nil {
		return c.fail(1, "failed to create symbolic link '"+args[1]+"': "+err.Error())
	}
	return 0
}

// mv renames one file or directory onto a path that is not a directory.
func mv(c *Call) int {
	_, args := c.options("fT")
	if len(args) != 2 {
		return c.fail(1, "FROM TO wanted")
	}
	if err := c.tree().rename(c.abs(args[0]), c.abs(args[1])); err != nil {
		return c.fail(1, "cannot move '"+args[0]+"' to '"+args[1]+"': "+err.Error())
	}
	return 0
}

// ls prints the names in each directory, or the path of each file, one a line.
func ls(c *Call) int {
	args := c.Args
	options := ""
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		options, args = args[0], args[1:]
		if strings.Trim(options, "-a1A") != "" {
			return c.fail(2, "unsupported option "+options)
		}
	}
	if len(args) == 0 {
		args = []string{"."}
	}
	code := 0
	for _, path := range args {
		names, err := c.tree().list(c.abs(path))
		if err == errNotDirectory {
			if _, _, err = c.tree().lookup(c.abs(path), false); err == nil {
				names, options = []string{path}, "-A"
			}
		}
		if err != nil {
			code = c.fail(2, "cannot access '"+path+"': "+err.Error())
			continue
		}
		out := ""
		for _, name := range names {
			if name[0] != '.' || strings.ContainsAny(options, "aA") {
				out += name + "\n"
			}
		}
		if _, err := io.WriteString(c.Stdout, out); err != nil {
			return c.done(err)
		}
	}
	return code
}

func readlink(c *Call) int {
	if len(c.Args) != 1 {
		return c.fail(1, "one operand wanted")
	}
	n, _, err := c.tree().lookup(c.abs(c.Args[0]), false)
	if err != nil || n.kind != symlink {
		return 1
	}
	_, err = io.WriteString(c.Stdout, n.target+"\n")
	return c.done(err)
}

// test is test and [.
func test(c *Call) int {
	args := c.Args
	if c.Name == "[" || strings.HasSuffix(c.Name, "/[") {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return c.fail(2, "missing ]")
		}
		args = args[:len(args)-1]
	}
	negate := false
	for len(args) > 1 && args[0] == "!" {
		negate, args = !negate, args[1:]
	}
	ok, known := c.condition(args)
	if !known {
		return c.fail(2, "unexpected operator")
	}
	return btoi(ok == negate)
}

func (c *Call) condition(args []string) (ok, known bool) {
	switch len(args) {
	case 0:
		return false, true
	case 1:
		return args[0] != "", true
	case 2:
		switch args[0] {
		case "-n":
			return args[1] != "", true
		case "-z":
			return args[1] == "", true
		}
		if !strings.Contains("-e-f-d-L-h-p-S-s-x-r-w", args[0]) || len(args[0]) != 2 {
			return false, false
		}
		link := args[0] == "-L" || args[0] == "-h"
		n, path, err := c.tree().lookup(c.abs(args[1]), !link)
		if err != nil || args[1] == "" {
			return false, true
		}
		switch args[0] {
		case "-f":
			ok = n.kind == regular
		case "-d":
			ok = n.kind == directory
		case "-L", "-h":
			ok = n.kind == symlink
		case "-p":
			ok = n.kind == fifo
		case "-S":
			ok = n.kind == socket
		case "-s":
			ok = len(n.data) > 0
		case "-x":
			ok = n.mode&0o100 != 0
		case "-r":
			ok = n.mode&0o400 != 0
		case "-w":
			ok = n.mode&0o200 != 0 && c.tree().mayWrite(path)
		default:
			ok = true
		}
		return ok, true
	case 3:
		a, errA := strconv.ParseInt(args[0], 10, 64)
		b, errB := strconv.ParseInt(args[2], 10, 64)
		numeric := errA == nil && errB == nil
		switch args[1] {
		case "=":
			return args[0] == args[2], true
		case "!=":
			return args[0] != args[2], true
		case "-eq":
			return a == b, numeric
		case "-ne":
			return a != b, numeric
		case "-lt":
			return a < b, numeric
		case "-le":
			return a <= b, numeric
		case "-gt":
			return a > b, numeric
		case "-ge":
			return a >= b, numeric
		}
	}
	return false, false
}
