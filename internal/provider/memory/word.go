package memory

import "strings"

// word reads one word, or nil where none begins.
func (p *parser) word() (word, error) {
	var w word
	begun := false
	literal := func(s string, quoted bool) {
		begun = true
		if n := len(w); n > 0 && w[n-1].param == "" && w[n-1].quoted == quoted {
			w[n-1].text += s
			return
		}
		w = append(w, part{text: s, quoted: quoted})
	}
	for p.pos < len(p.src) {
		c := p.peek()
		switch {
		case strings.IndexByte(" \t\n;&|<>", c) >= 0:
			return w, nil
		case p.accept("\\\n"):
		case c == '\\':
			if p.pos+1 == len(p.src) {
				return nil, p.fail("backslash at end of file")
			}
			literal(p.src[p.pos+1:p.pos+2], true)
			p.pos += 2
		case c == '\'':
			end := strings.IndexByte(p.src[p.pos+1:], '\'')
			if end < 0 {
				return nil, p.fail("Unterminated quoted string")
			}
			literal(p.src[p.pos+1:p.pos+1+end], true)
			p.pos += end + 2
		case c == '"':
			p.pos++
			literal("", true) // an empty string is a word
			if err := p.quoted(&w, literal); err != nil {
				return nil, err
			}
		case c == '$':
			if err := p.parameter(&w, false, literal); err != nil {
				return nil, err
			}
			begun = true
		// What a real shell would expand or treat as syntax, and we do not.
		case c == '`' || c == '(' || c == ')' || c == '*' || c == '?',
			c == '[' && !p.keywordAt("["), c == '~' && !begun, c == 0:
			return nil, p.fail("unquoted " + strings.ToValidUTF8(string(c), "?") + " unsupported")
		default:
			literal(string([]byte{c}), false)
			p.pos++
		}
	}
	return w, nil
}

// keywordAt reports whether w stands here alone, without taking it.
func (p *parser) keywordAt(w string) bool {
	at := p.pos
	ok := p.keyword(w)
	p.pos = at
	return ok
}

// quoted reads up to the closing double quote.
func (p *parser) quoted(w *word, literal func(string, bool)) error {
	for p.pos < len(p.src) {
		switch c := p.peek(); {
		case c == '"':
			p.pos++
			return nil
		case c == '`':
			return p.fail("command substitution unsupported")
		case c == '$':
			if err := p.parameter(w, true, literal); err != nil {
				return err
			}
		case c == '\\' && p.pos+1 < len(p.src) && strings.IndexByte("$`\"\\", p.src[p.pos+1]) >= 0:
			literal(p.src[p.pos+1:p.pos+2], true)
			p.pos += 2
		case p.accept("\\\n"):
		default:
			literal(string([]byte{c}), true)
			p.pos++
		}
	}
	return p.fail("Unterminated quoted string")
}

// parameter reads $NAME, ${NAME}, $1, $?, $$, $# or $@; a dollar before
// anything else is a dollar.
func (p *parser) parameter(w *word, quoted bool, literal func(string, bool)) error {
	rest := p.src[p.pos+1:]
	name := ""
	switch {
	case strings.HasPrefix(rest, "("):
		return p.fail("command substitution unsupported")
	case strings.HasPrefix(rest, "{"):
		end := strings.IndexByte(rest, '}')
		if end < 0 || !isParameter(rest[1:end]) {
			return p.fail("Bad substitution")
		}
		name = rest[1:end]
		p.pos += 2 + len(name) + 1
	case rest != "" && strings.IndexByte("?$#@0123456789", rest[0]) >= 0:
		name = rest[:1]
		p.pos += 2
	case rest != "" && strings.IndexByte("*!-'\"", rest[0]) >= 0:
		if rest[0] == '"' && quoted { // "…$" is a dollar before the closing quote
			literal("$", true)
			p.pos++
			return nil
		}
		return p.fail("Bad substitution")
	default:
		n := 0
		for n < len(rest) && isName(rest[:n+1]) {
			n++
		}
		if n == 0 {
			literal("$", quoted)
			p.pos++
			return nil
		}
		name = rest[:n]
		p.pos += 1 + n
	}
	*w = append(*w, part{param: name, quoted: quoted})
	return nil
}

func isParameter(s string) bool {
	return isName(s) || len(s) == 1 && strings.IndexByte("?$#@0123456789", s[0]) >= 0
}
