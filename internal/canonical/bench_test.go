package canonical

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// benchmarkRequest is about the size of a real provision request.
func benchmarkRequest() request {
	r := request{
		Tag: "provision", LeaseEpoch: 41, Limits: limits{CPUMillis: 2000, Processes: 512},
		Maximum: &limits{CPUMillis: 4000, Processes: 1024}, Environment: map[string]string{},
	}
	for i := range 16 {
		n := strconv.Itoa(i)
		r.Mounts = append(r.Mounts, mount{"/workspace/repository-" + n, "read_write", "git"})
		r.Environment["VARIABLE_"+n] = "a value with \"quotes\" and é " + n
		r.Argv = append(r.Argv, "--option="+n)
	}
	return r
}

func BenchmarkEncode(b *testing.B) {
	r := benchmarkRequest()
	b.Run("canonical", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	small, err := Encode(benchmarkRequest())
	if err != nil {
		b.Fatal(err)
	}
	// One long string, as a value that carries text does.
	large := bytes.Replace(small, []byte(`"provision"`), []byte(`"`+strings.Repeat("text é ", 1<<17)+`"`), 1)
	for name, data := range map[string][]byte{"request": small, "1MiB-string": large} {
		b.Run(name+"/canonical", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Decode(data, new(request)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := json.Unmarshal(data, new(request)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
