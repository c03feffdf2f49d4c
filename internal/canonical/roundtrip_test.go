package canonical

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// strict has no field whose zero value can be spelt out and then omitted, so
// that all its canonical bytes come back unchanged.
type strict struct {
	Text  string            `json:"text"`
	Big   int64             `json:"big"`
	Small int8              `json:"small"`
	Count uint64            `json:"count"`
	Flag  bool              `json:"flag"`
	Maybe *bool             `json:"maybe,omitzero"`
	One   *mount            `json:"one,omitempty"`
	List  []mount           `json:"list,omitzero"`
	Must  []access          `json:"must"`
	Map   map[string]int    `json:"map"`
	Named map[access]*mount `json:"named,omitzero"`
	Tree  *node             `json:"tree,omitzero"`
}

func randomText(r *rand.Rand) string {
	ranges := []rune{0x7f, 0x20, 0xff, 0x2030, 0xffff, utf8.MaxRune}
	text := []rune{}
	for range r.IntN(6) {
		c := r.Int32N(ranges[r.IntN(len(ranges))] + 1)
		if 0xd800 <= c && c <= 0xdfff {
			c += 0x1000
		}
		text = append(text, c)
	}
	return string(text)
}

func randomTree(r *rand.Rand, depth int) *node {
	n := &node{}
	if depth == 0 {
		return n
	}
	switch r.IntN(4) {
	case 0:
		n.Next = randomTree(r, depth-1)
	case 1:
		n.Children = []node{}
		for range r.IntN(3) {
			n.Children = append(n.Children, *randomTree(r, depth-1))
		}
	case 2:
		n.Named = map[string]*node{}
		for range r.IntN(3) {
			n.Named[randomText(r)] = randomTree(r, depth-1)
		}
	}
	return n
}

func randomStrict(r *rand.Rand) strict {
	flag := r.IntN(2) == 0
	v := strict{
		Text: randomText(r), Big: r.Int64N(2*MaxInteger+1) - MaxInteger, Small: int8(r.IntN(256) - 128),
		Count: r.Uint64N(MaxInteger + 1), Flag: flag, Must: []access{}, Map: map[string]int{},
	}
	for range r.IntN(4) {
		v.Must = append(v.Must, access(randomText(r)))
		v.Map[randomText(r)] = r.IntN(10) - 5
	}
	if r.IntN(2) == 0 {
		v.Maybe, v.One = &flag, &mount{MountPath: randomText(r)}
		v.List, v.Named = []mount{}, map[access]*mount{}
		for range r.IntN(3) {
			v.List = append(v.List, mount{Kind: randomText(r)})
			v.Named[access(randomText(r))] = &mount{Access: access(randomText(r))}
		}
		v.Tree = randomTree(r, 6)
	}
	return v
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(8785, 8259))
	for range 2000 {
		v := randomStrict(r)
		data, err := Encode(v)
		if err != nil {
			t.Fatalf("%v: %+v", err, v)
		}
		var back strict
		if err := Decode(data, &back); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if diff := cmp.Diff(v, back); diff != "" {
			t.Fatalf("value changed: %s\n%s", data, diff)
		}
		again, err := Encode(back)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("bytes changed: %v\n%s\n%s", err, data, again)
		}
		// The same value with white space, other key order and escapes.
		loose, err := json.MarshalIndent(v, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(loose, []byte("null")) {
			t.Fatalf("the test wrote null: %s", loose)
		}
		var other strict
		if err := Decode(loose, &other); err != nil {
			t.Fatalf("%v: %s", err, loose)
		}
		if diff := cmp.Diff(v, other); diff != "" {
			t.Fatalf("loose form differs: %s\n%s", loose, diff)
		}
	}
}

// FuzzDecode holds Decode against encoding/json: whatever the strict one takes,
// the lax one takes as well, with the same value; and its canonical bytes are a
// fixed point.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		data, err := Encode(randomStrict(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(minimal))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkDecode(t, data, new(request), new(request), new(request))
		checkDecode(t, data, new(strict), new(strict), new(strict))
		checkDecode(t, data, new([]map[string]node), new([]map[string]node), new([]map[string]node))
	})
}

func checkDecode(t *testing.T, data []byte, ours, theirs, back any) {
	err := Decode(data, ours)
	if err != nil {
		if reasonOf(t, err) == ReasonUnsupportedType || len(err.Error()) > 4096 {
			t.Fatal(err)
		}
		return
	}
	lax := json.NewDecoder(bytes.NewReader(data))
	lax.DisallowUnknownFields()
	if err := lax.Decode(theirs); err != nil {
		t.Fatalf("accepted what encoding/json refuses: %v", err)
	}
	if diff := cmp.Diff(theirs, ours, ignoreLocal); diff != "" {
		t.Fatalf("(-encoding/json +ours)\n%s", diff)
	}
	once, err := Encode(ours)
	if err != nil {
		t.Fatalf("decoded but does not encode: %v", err)
	}
	if err := Decode(once, back); err != nil {
		t.Fatalf("encoded but does not decode: %v: %s", err, once)
	}
	twice, err := Encode(back)
	if err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("not a fixed point: %v\n%s\n%s", err, once, twice)
	}
}
