package main

import "testing"

func TestLineHolds(t *testing.T) {
	for _, tt := range []struct {
		name string
		line line
		want string
	}{
		{"a ratio at its bound", line{ours: samples{9}, raw: samples{10}, bound: 0.9}, "holds"},
		{"a ratio over its bound", line{ours: samples{9.1}, raw: samples{10}, bound: 0.9}, "**fails**"},
		{"the median decides, not the minimum", line{ours: samples{1, 30, 20}, raw: samples{10}, bound: 1}, "**fails**"},
		{"a value without a raw side", line{ours: samples{19.9}, bound: 20}, "holds"},
		{"a bound of zero", line{ours: samples{1}, strict: true}, "**fails**"},
		{"no bound", line{ours: samples{1}, raw: samples{1}}, "informative"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.line.holds(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   samples
		want float64
	}{{nil, 0}, {samples{3}, 3}, {samples{5, 1, 3}, 3}, {samples{4, 1, 2, 3}, 2.5}} {
		if got := tt.in.median(); got != tt.want {
			t.Errorf("median of %v: got %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestShellLine(t *testing.T) {
	if got, want := shellLine([]string{"sh", "-c", "echo 'a' > b", ""}), `sh -c 'echo '\''a'\'' > b' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
