package memory

import "strings"

// wordBuilder collects the parts of one word. Text is gathered in one buffer:
// a word of a megabyte is read in one pass.
type wordBuilder struct {
	parts  word
	text   []byte
	quoted bool // of text
	begun  bool // something was seen, if only an empty string
	open   bool // text is a part, if only an empty one
}

func (b *wordBuilder) literal(s string, quoted bool) {
	if b.open && b.quoted != quoted {
		b.flush()
	}
	b.text, b.quoted, b.begun, b.open = append(b.text, s...), quoted, true, true
}

func (b *wordBuilder) param(name string, quoted bool) {
	b.flush()
	b.parts, b.begun = append(b.parts, part{param: name, quoted: quoted}), true
}

func (b *wordBuilder) flush() {
	if b.open {
		b.parts = append(b.parts, part{text: string(b.text), quoted: b.quoted})
	}
	b.text, b.open = b.text[:0], false
}

// word reads one word, or nil where none begins.
func (p *parser) word() (word, error) {
	var b wordBuilder
	for p.pos < len(p.src) {
		c := p.peek()
		switch {
		case strings.IndexByte(" \t\n;&|<>", c) >= 0:
			b.flush()
			return b.parts, nil
		case p.accept("\\\n"):
		case c == '\\':
			if p.pos+1 == len(p.src) {
				return nil, p.fail("backslash at end of file")
			}
			b.literal(p.src[p.pos+1:p.pos+2], true)
			p.pos += 2
		case c == '\'':
			end := strings.IndexByte(p.src[p.pos+1:], '\'')
			if end < 0 {
				return nil, p.fail("Unterminated quoted string")
			}
			b.literal(p.src[p.pos+1:p.pos+1+end], true)
			p.pos += end + 2
		case c == '"':
			p.pos++
			b.literal("", true) // an empty string is a word
			if err := p.quoted(&b); err != nil {
				return nil, err
			}
		case c == '$':
			if err := p.parameter(&b, false); err != nil {
				return nil, err
			}
		// What a real shell would expand or treat as syntax, and we do not.
		case c == '`' || c == '(' || c == ')' || c == '*' || c == '?',
			c == '[' && !p.keywordAt("["), c == '~' && !b.begun, c == 0:
			return nil, p.fail("unquoted " + strings.ToValidUTF8(string(c), "?") + " unsupported")
		default:
			b.literal(p.src[p.pos:p.pos+1], false)
			p.pos++
		}
	}
	b.flush()
	return b.parts, nil
}

// keywordAt reports whether w stands here alone, without taking it.
func (p *parser) keywordAt(w string) bool {
	at := p.pos
	ok := p.keyword(w)
	p.pos = at
	return ok
}

// quoted reads up to the closing double quote.
func (p *parser) quoted(b *wordBuilder) error {
	for p.pos < len(p.src) {
		switch c := p.peek(); {
		case c == '"':
			p.pos++
			return nil
		case c == '`':
			return p.fail("command substitution unsupported")
		case c == '$':
			if err := p.parameter(b, true); err != nil {
				return err
			}
		case c == '\\' && p.pos+1 < len(p.src) && strings.IndexByte("$`\"\\", p.src[p.pos+1]) >= 0:
			b.literal(p.src[p.pos+1:p.pos+2], true)
			p.pos += 2
		case p.accept("\\\n"):
		default:
			b.literal(p.src[p.pos:p.pos+1], true)
			p.pos++
		}
	}
	return p.fail("Unterminated quoted string")
}

// parameter reads $NAME, ${NAME}, $1, $?, $$, $# or $@; a dollar before
// anything else is a dollar.
func (p *parser) parameter(b *wordBuilder, quoted bool) error {
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
			b.literal("$", true)
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
			b.literal("$", quoted)
			p.pos++
			return nil
		}
		name = rest[:n]
		p.pos += 1 + n
	}
	b.param(name, quoted)
	return nil
}

func isParameter(s string) bool {
	return isName(s) || len(s) == 1 && strings.IndexByte("?$#@0123456789", s[0]) >= 0
}
