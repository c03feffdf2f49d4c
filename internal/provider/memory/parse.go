package memory

import (
	"strconv"
	"strings"
)

// The grammar, a part of POSIX sh; doc.go has it for readers. What is not in
// it is refused, never guessed: a text that parses means here what it means
// to a real shell.

// list is commands in order; each is reached or not by its connector.
type list []item

type item struct {
	op   string // how it follows the one before it: ";", "&&" or "||"
	pipe pipeline
}

type pipeline struct {
	negate   bool
	commands []command
}

// command is a simple command, or a compound one with redirections.
type command struct {
	assigns []assign
	words   []word
	redirs  []redirection

	loop                  bool // while cond; do body; done
	branch                bool // if cond; then body; else other; fi
	cond, body, otherwise list
}

type assign struct {
	name  string
	value word
}

type word []part

// part is a piece of text or a parameter.
type part struct {
	text   string
	param  string // "" for text
	quoted bool
}

type redirection struct {
	fd     int
	op     string // "<", ">", ">>", ">&"
	target word
}

// syntaxError says where a text left the grammar.
type syntaxError struct {
	line int
	what string
}

func (e *syntaxError) Error() string {
	return strconv.Itoa(e.line) + ": Syntax error: " + e.what
}

const (
	maxNesting = 64
	maxScript  = 1 << 20
)

type parser struct {
	src   string
	pos   int
	depth int
}

// parse reads a whole script.
func parse(src string) (l list, err error) {
	if len(src) > maxScript {
		return nil, &syntaxError{1, "script too long"}
	}
	p := &parser{src: src}
	l, stop, err := p.list()
	if err == nil && stop != "" {
		err = p.fail(strconv.Quote(stop) + " unexpected")
	}
	return l, err
}

func (p *parser) fail(what string) error {
	return &syntaxError{1 + strings.Count(p.src[:p.pos], "\n"), what}
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) has(s string) bool { return strings.HasPrefix(p.src[p.pos:], s) }

func (p *parser) accept(s string) bool {
	if p.has(s) {
		p.pos += len(s)
		return true
	}
	return false
}

// blanks skips blanks, comments and joined lines; newlines too if asked.
func (p *parser) blanks(newlines bool) {
	for p.pos < len(p.src) {
		switch c := p.peek(); {
		case c == ' ' || c == '\t' || newlines && c == '\n':
			p.pos++
		case p.accept("\\\n"):
		case c == '#':
			for p.pos < len(p.src) && p.peek() != '\n' {
				p.pos++
			}
		default:
			return
		}
	}
}

// list reads up to the end or up to a closing reserved word, which it returns.
func (p *parser) list() (l list, stop string, err error) {
	if p.depth++; p.depth > maxNesting {
		return nil, "", p.fail("nested too deep")
	}
	defer func() { p.depth-- }()
	op := ";"
	for {
		p.blanks(true)
		if p.pos == len(p.src) {
			if op != ";" {
				return nil, "", p.fail("end of file unexpected")
			}
			return l, "", nil
		}
		if stop := p.reserved(); stop != "" {
			if op != ";" || stop == "" {
				return nil, "", p.fail(strconv.Quote(stop) + " unexpected")
			}
			return l, stop, nil
		}
		pipe, err := p.pipeline()
		if err != nil {
			return nil, "", err
		}
		l = append(l, item{op, pipe})
		p.blanks(false)
		switch {
		case p.accept("&&"):
			op = "&&"
		case p.accept("||"):
			op = "||"
		case p.has(";;"):
			return nil, "", p.fail(`";;" unexpected`)
		case p.accept(";"), p.accept("\n"):
			op = ";"
		case p.pos == len(p.src):
			op = ";"
		default:
			return nil, "", p.fail(strconv.Quote(p.src[p.pos:p.pos+1]) + " unexpected")
		}
	}
}

// reserved takes a closing word in command position, or nothing.
func (p *parser) reserved() string {
	for _, w := range []string{"do", "done", "then", "else", "fi"} {
		if p.keyword(w) {
			return w
		}
	}
	return ""
}

// keyword takes one reserved word if it stands here alone.
func (p *parser) keyword(w string) bool {
	if !p.has(w) {
		return false
	}
	if next := p.pos + len(w); next < len(p.src) && !strings.ContainsRune(" \t\n;&|<>", rune(p.src[next])) {
		return false
	}
	p.pos += len(w)
	return true
}

func (p *parser) pipeline() (pipeline, error) {
	var pipe pipeline
	for p.keyword("!") {
		if pipe.negate {
			return pipe, p.fail(`"!" unexpected`)
		}
		pipe.negate = true
		p.blanks(false)
	}
	for {
		c, err := p.command()
		if err != nil {
			return pipe, err
		}
		pipe.commands = append(pipe.commands, c)
		p.blanks(false)
		if p.has("||") || !p.accept("|") {
			return pipe, nil
		}
		p.blanks(true)
	}
}

func (p *parser) command() (c command, err error) {
	for _, w := range []string{"for", "case", "until", "function", "{", "}", "elif", "esac", "in"} {
		if p.keyword(w) {
			return c, p.fail(strconv.Quote(w) + " unsupported")
		}
	}
	switch {
	case p.keyword("while"):
		c.loop = true
		if c.cond, err = p.until("do"); err == nil {
			c.body, err = p.until("done")
		}
	case p.keyword("if"):
		c.branch = true
		if c.cond, err = p.until("then"); err != nil {
			return c, err
		}
		var stop string
		if c.body, stop, err = p.list(); err == nil && stop == "else" {
			c.otherwise, stop, err = p.list()
		}
		if err == nil && stop != "fi" {
			err = p.fail(`"fi" expected`)
		}
		if err == nil && len(c.body) == 0 {
			err = p.fail(`"fi" unexpected`)
		}
	}
	if err != nil {
		return c, err
	}
	for {
		p.blanks(false)
		if r, ok, err := p.redirection(); err != nil {
			return c, err
		} else if ok {
			c.redirs = append(c.redirs, r)
			continue
		}
		w, err := p.word()
		if err != nil {
			return c, err
		}
		if w == nil {
			break
		}
		if c.loop || c.branch {
			return c, p.fail("word unexpected")
		}
		if name, value, ok := assignment(w); ok && len(c.words) == 0 {
			c.assigns = append(c.assigns, assign{name, value})
		} else {
			c.words = append(c.words, w)
		}
	}
	if !c.loop && !c.branch && len(c.words)+len(c.assigns)+len(c.redirs) == 0 {
		return c, p.fail("command expected")
	}
	return c, nil
}

// until reads a list that is not empty and ends with the word stop.
func (p *parser) until(stop string) (list, error) {
	l, got, err := p.list()
	if err == nil && (got != stop || len(l) == 0) {
		err = p.fail(strconv.Quote(stop) + " expected")
	}
	return l, err
}

func assignment(w word) (name string, value word, ok bool) {
	if len(w) == 0 || w[0].param != "" || w[0].quoted {
		return "", nil, false
	}
	name, rest, ok := strings.Cut(w[0].text, "=")
	if !ok || !isName(name) {
		return "", nil, false
	}
	return name, append(word{{text: rest}}, w[1:]...), true
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (p *parser) redirection() (r redirection, ok bool, err error) {
	start := p.pos
	r.fd = -1
	if c := p.peek(); c >= '0' && c <= '9' {
		r.fd = int(c - '0')
		p.pos++
	}
	switch {
	case p.has("<<") || p.has("<&") || p.has("<>") || p.has(">|"):
		return r, false, p.fail(strconv.Quote(p.src[p.pos:p.pos+2]) + " unsupported")
	case p.accept("<"):
		r.op = "<"
	case p.accept(">>"):
		r.op = ">>"
	case p.accept(">&"):
		r.op = ">&"
	case p.accept(">"):
		r.op = ">"
	default:
		p.pos = start
		return r, false, nil
	}
	if r.fd < 0 {
		r.fd = 1
		if r.op == "<" {
			r.fd = 0
		}
	}
	p.blanks(false)
	if r.target, err = p.word(); err == nil && r.target == nil {
		err = p.fail("redirection unexpected")
	}
	to := ""
	if len(r.target) == 1 {
		to = r.target[0].text
	}
	if err == nil && (r.fd > 2 || (r.op == "<") != (r.fd == 0) || r.op == ">&" && to != "1" && to != "2") {
		err = p.fail("redirection unsupported")
	}
	return r, err == nil, err
}
