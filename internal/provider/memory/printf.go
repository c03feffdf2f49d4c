package memory

import (
	"strconv"
	"strings"
)

// printf knows %s, %d, %% and the escapes \n \t \r \\ and \NNN (octal). The
// format is used again while arguments are left.
func printf(c *Call) int {
	if len(c.Args) == 0 {
		return c.fail(2, "missing operand")
	}
	format, args := c.Args[0], c.Args[1:]
	code := 0
	var out []byte
	for first := true; first || len(args) > 0; first = false {
		before := len(args)
		for i := 0; i < len(format); i++ {
			switch ch := format[i]; {
			case ch == '\\':
				n, b := escape(format[i+1:])
				if n == 0 {
					b = '\\'
				}
				out = append(out, b)
				i += n
			case ch == '%' && i+1 < len(format):
				i++
				arg := ""
				if format[i] != '%' && len(args) > 0 {
					arg, args = args[0], args[1:]
				}
				switch format[i] {
				case '%':
					out = append(out, '%')
				case 's':
					out = append(out, arg...)
				case 'd':
					n, err := strconv.ParseInt(arg, 10, 64)
					if err != nil && arg != "" {
						code = c.fail(1, arg+": expected numeric value")
					}
					out = strconv.AppendInt(out, n, 10)
				default:
					c.Stdout.Write(out)
					return c.fail(1, "%"+format[i:i+1]+": invalid directive")
				}
			case ch == '%':
				c.Stdout.Write(out)
				return c.fail(1, "%: invalid directive")
			default:
				out = append(out, ch)
			}
		}
		// Round by round: a long format with many arguments is more than memory
		// should hold.
		if _, err := c.Stdout.Write(out); err != nil {
			return c.done(err)
		}
		out = out[:0]
		if len(args) == before {
			break
		}
	}
	return code
}

// escape reads what follows a backslash: how many bytes it took, and the byte
// they stand for.
func escape(s string) (n int, b byte) {
	if s == "" {
		return 0, 0
	}
	if i := strings.IndexByte(`ntr\`, s[0]); i >= 0 {
		return 1, "\n\t\r\\"[i]
	}
	value := 0
	for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		value = value*8 + int(s[n]-'0')
		n++
	}
	return n, byte(value)
}
