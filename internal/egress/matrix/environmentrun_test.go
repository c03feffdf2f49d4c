package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// scripted is a Run whose streams, command and end are what a test says.
type scripted struct {
	says     string
	tell     error
	executed string
	fails    error
	ends     error
}

func (s *scripted) Read([]byte) (int, error)    { return 0, io.EOF }
func (s *scripted) Write(p []byte) (int, error) { return len(p), s.tell }
func (s *scripted) End(context.Context) error   { return s.ends }
func (s *scripted) Execute(context.Context, sandbox.InstanceID, ...string) ([]byte, error) {
	return []byte(s.executed), s.fails
}

// TestARunThatGoesWrong: only what an environment names fails A15. Whatever else goes
// wrong with a Run is an error, and no mutant of an environment is caught by it.
func TestARunThatGoesWrong(t *testing.T) {
	token, broken := route.NewToken(), errors.New("broken")
	var list []string
	for _, name := range proxyNames {
		list = append(list, name+"=http://"+guardDoor)
	}
	for _, name := range exemptNames {
		list = append(list, name+"=localhost")
	}
	for name, value := range modelNames {
		list = append(list, name+"="+value)
	}
	list = append(list, "ANTHROPIC_API_KEY="+token, "OPENAI_API_KEY="+token)
	text := func(list []string) string {
		data, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	right, wrong := text(list), text(append(slices.Clone(list), "PLANE=plane.test:8443"))
	for name, c := range map[string]struct {
		run  scripted
		want report.Status
	}{
		"right":                       {scripted{says: right, executed: right}, report.Pass},
		"a live process is told":      {scripted{says: wrong, executed: right}, report.Fail},
		"a command is told":           {scripted{says: right, executed: wrong}, report.Fail},
		"no harness":                  {scripted{executed: wrong}, report.Error},
		"it hears nothing":            {scripted{says: wrong, executed: wrong, tell: broken}, report.Error},
		"cut off":                     {scripted{says: strings.TrimSuffix(wrong, "\n"), executed: wrong}, report.Error},
		"something else":              {scripted{says: "unknown\n", executed: right}, report.Error},
		"a command says nothing":      {scripted{says: right}, report.Error},
		"no command":                  {scripted{says: wrong, executed: wrong, fails: broken}, report.Error},
		"right, and no end":           {scripted{says: right, executed: right, ends: broken}, report.Error},
		"what it is told, and no end": {scripted{says: wrong, executed: wrong, ends: broken}, report.Error},
	} {
		r := &realRun{RealRun: &c.run, out: bufio.NewReader(strings.NewReader(c.run.says)), guard: &watched{}, token: token}
		at := &trial{bench: &bench{}, ctx: t.Context()}
		if got, reason, _ := at.judge(Case{run: r.environmentsToTheEnd}); got != c.want {
			t.Errorf("%s: expected %s, got %s: %s", name, c.want, got, reason)
		}
	}
}
