package userns

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       block
		ok         bool
		free       uint32
	}{
		{"empty", "", block{}, false, usual},
		{"by name", "ann:231072:65536\n", block{231072, 65536}, true, 296608},
		{"by number", "1000:100000:65536", block{100000, 65536}, true, 165536},
		{"the first that is large enough", "ann:5:10\nann:200000:65536\nann:300000:65536\n", block{200000, 65536}, true, 365536},
		{"a larger one", "ann:200000:1000000\n", block{200000, 1000000}, true, 1200000},
		{"too small", "ann:200000:65535\n", block{}, false, 265535},
		{"another's", "bob:100000:65536\n", block{}, false, 165536},
		{"another's that begins like hers", "anna:100000:65536\n", block{}, false, 165536},
		{"a user without a name", ":100000:65536\n", block{}, false, 165536},
		{"what is no line of it", "ann\nann:x:65536\nann:1:2:3\nann:-1:65536\n", block{}, false, usual},
		{"root's own id", "ann:0:65536\n", block{}, false, usual},
		{"past the last id", "ann:4294967290:65536\n", block{}, false, usual},
		{"more than a number holds", "ann:99999999999999999999:65536\n", block{}, false, usual},
	} {
		got, ok, free := find(strings.NewReader(c.file), "ann", "1000")
		if c.name == "a user without a name" {
			got, ok, free = find(strings.NewReader(c.file), "", "1000")
		}
		if got != c.want || ok != c.ok || free != c.free {
			t.Errorf("%s: %v %v %d, want %v %v %d", c.name, got, ok, free, c.want, c.ok, c.free)
		}
	}
}

// Whatever stands in the file, what is found is a whole block that does not hold root,
// and what is said to be free is behind it.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{"", "ann:231072:65536\n", "1000:1:65536\nann:0:70000", "ann:4294901759:65536", "ann:4294967295:1\n::\n", "\x00:1:2"} {
		f.Add(seed, "ann")
	}
	f.Fuzz(func(t *testing.T, file, name string) {
		got, ok, free := find(strings.NewReader(file), name, "1000")
		if free < usual || ok && (got.first == 0 || got.count < Size || got.first+got.count < got.first || free < got.first+got.count) {
			t.Errorf("%v %v %d", got, ok, free)
		}
		if !ok && got != (block{}) {
			t.Errorf("%v although there is none", got)
		}
	})
}
