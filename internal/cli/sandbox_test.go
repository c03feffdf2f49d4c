package cli

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// sandboxCommands are the words of the scripts about checkfu sandbox.
var sandboxCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"await":    awaitFile,
	"dropline": dropLine,
	"flip":     flipByte,
	"json":     isJSON,
	"junit":    junitAddsUp,
	"order":    orderOfCases,
	"replace":  replaceText,
}

// awaitFile waits for a file that a command in the background makes.
func awaitFile(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err := os.Stat(path); err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	ts.Fatalf("%s never came", path)
}

// dropLine takes line N out of a file.
func dropLine(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.SplitAfter(ts.ReadFile(args[0]), "\n")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(append(lines[:n-1:n-1], lines[n:]...), "")), 0o644))
}

// flipByte flips one bit in the middle of a file.
func flipByte(ts *testscript.TestScript, neg bool, args []string) {
	data := []byte(ts.ReadFile(args[0]))
	data[len(data)/2] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}

func replaceText(ts *testscript.TestScript, neg bool, args []string) {
	before := ts.ReadFile(args[0])
	after := strings.Replace(before, args[1], args[2], 1)
	if after == before {
		ts.Fatalf("%s: no %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(after), 0o644))
}

func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	if text := ts.ReadFile(args[0]); !json.Valid([]byte(text)) {
		ts.Fatalf("%s is not one JSON document: %.200q", args[0], text)
	}
}

// orderOfCases keeps the first word of each line.
func orderOfCases(ts *testscript.TestScript, neg bool, args []string) {
	var out strings.Builder
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		word, _, _ := strings.Cut(line, " ")
		out.WriteString(word + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(out.String()), 0o644))
}

// junitAddsUp counts the elements of a JUnit report and compares them with what
// its attributes say.
func junitAddsUp(ts *testscript.TestScript, neg bool, args []string) {
	type counts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	var root struct {
		counts
		Suites []struct {
			counts
			Name    string `xml:"name,attr"`
			Skipped int    `xml:"skipped,attr"`
			Cases   []struct {
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	ts.Check(xml.Unmarshal([]byte(ts.ReadFile(args[0])), &root))
	var all counts
	for _, s := range root.Suites {
		var found counts
		skipped := 0
		for _, c := range s.Cases {
			found.Tests++
			if c.Failure != nil {
				found.Failures++
			}
			if c.Error != nil {
				found.Errors++
			}
			if c.Skipped != nil {
				skipped++
			}
		}
		if found != s.counts || skipped != s.Skipped {
			ts.Fatalf("%s: suite %s says %+v and %d skipped, its elements are %+v and %d", args[0], s.Name, s.counts, s.Skipped, found, skipped)
		}
		all.Tests, all.Failures, all.Errors = all.Tests+found.Tests, all.Failures+found.Failures, all.Errors+found.Errors
	}
	if all != root.counts || all.Tests == 0 {
		ts.Fatalf("%s: the root says %+v, its elements are %+v", args[0], root.counts, all)
	}
}
