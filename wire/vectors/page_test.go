package vectors_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// TestPage_SaysWhatTheCodeSays holds docs/wire.md to the tables: every endpoint,
// tag with its status and fields, header, frame and bound.
func TestPage_SaysWhatTheCodeSays(t *testing.T) {
	data, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	row := func(name string) string {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "|") && strings.Contains(line, "`"+name+"`") {
				return line
			}
		}
		t.Errorf("no row has %s", name)
		return ""
	}
	for _, e := range wire.Endpoints() {
		line := strings.Split(row(string(e)), "|")
		if len(line) < 5 {
			continue
		}
		traits, _ := e.Traits()
		if traits.Mutating != strings.Contains(line[2], "op") || traits.Handoff != strings.Contains(line[2], "handoff") {
			t.Errorf("%s: %s", e, line[2])
		}
		if traits.FramedRequest != strings.Contains(line[3], "frames:") || e != wire.ProcessStream && traits.FramedResponse != strings.Contains(line[4], "frames:") {
			t.Errorf("%s: frames: %s %s", e, line[3], line[4])
		}
	}
	tags := []string{}
	for _, k := range sandbox.Kinds() {
		tags = append(tags, string(k))
	}
	for _, tag := range wire.Tags() {
		tags = append(tags, string(tag))
	}
	for _, tag := range tags {
		status, must, may, _ := wire.ErrorShape(tag)
		line := row(tag)
		if !strings.Contains(line, strconv.Itoa(status)) {
			t.Errorf("%s is %d: %s", tag, status, line)
		}
		if strings.Contains(line, "likewise") {
			continue
		}
		for _, key := range must {
			if !strings.Contains(line, "`"+key+"`") {
				t.Errorf("%s has %s: %s", tag, key, line)
			}
		}
		for _, key := range may {
			if !strings.Contains(line, "`"+key+"?`") {
				t.Errorf("%s may have %s: %s", tag, key, line)
			}
		}
	}
	for _, name := range []string{wire.HeaderAuthorization, wire.HeaderWire, wire.HeaderLeaseID, wire.HeaderLeaseEpoch, wire.HeaderOperationID,
		wire.HeaderDeadline, wire.HeaderWait, wire.HeaderCapabilities, wire.HeaderBoot} {
		row(name)
	}
	for _, typ := range wire.Types() {
		for _, response := range []bool{false, true} {
			line := row(authorkit.FrameName(typ, response))
			if !regexp.MustCompile(`^\|[^|]*\b` + strconv.FormatInt(0x100|int64(typ), 16)[1:] + `\b`).MatchString(line) {
				t.Errorf("type %#x: %s", typ, line)
			}
		}
	}
	for _, bound := range []int64{wire.MaxRequestBytes, wire.MaxFramedRequestBytes, wire.MaxInputBytes, wire.MaxInputRequestBytes, wire.MaxExecuteBytes,
		wire.MaxReadFileBytes, wire.MaxReadFilesBytes, wire.MaxListingBytes, wire.MaxFrameBytes, wire.MaxErrorBytes, wire.MaxHeaderBytes, wire.MaxWaitMS,
		wire.MinHeartbeatMS, wire.MaxHeartbeatMS, wire.MinOutputWindowBytes, wire.MaxOutputWindowBytes, wire.MinInputBufferBytes, wire.MaxInputBufferBytes,
		wire.MaxDeadline.Milliseconds(), wire.DefaultWaitMS} {
		if !regexp.MustCompile(`\b` + strconv.FormatInt(bound, 10) + `\b`).MatchString(page) {
			t.Errorf("the bound %d is not there", bound)
		}
	}
	for _, word := range []string{wire.Revision, wire.MediaFrames, wire.MediaJSON, strconv.Itoa(sandbox.RollbackSeconds) + " seconds", strconv.Itoa(wire.MaxPageEntries/1000) + ",000 entries"} {
		if !strings.Contains(page, word) {
			t.Errorf("%q is not there", word)
		}
	}
}
