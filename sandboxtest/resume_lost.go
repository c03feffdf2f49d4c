package sandboxtest

import (
	"context"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// lostFaults keep of the output tree what their archive takes for something.
func lostFaults() []Saboteur {
	return []Saboteur{
		{ID: "N34", Fault: "empty files are lost on resume", Kills: "snapshot.keeps-files/empty-file", Wrap: resumeDrops(func(sees func(string) string, path string) bool {
			return sees("[ -f "+path+" ] && [ ! -s "+path+" ] && echo yes") != ""
		})},
		{ID: "N35", Fault: "empty directories are lost on resume", Kills: "snapshot.keeps-files/empty-directory", Wrap: resumeDrops(func(sees func(string) string, path string) bool {
			return sees("[ -d "+path+" ] && echo yes") != "" && sees("ls -A "+path) == ""
		})},
		{ID: "N36", Fault: "hidden files are lost on resume", Kills: "snapshot.keeps-files/hidden-file", Wrap: resumeDrops(func(_ func(string) string, path string) bool {
			return hidden(path)
		})},
	}
}

// resumeDrops loses what lies in the output tree and fits. sees gives what a
// script of the workload prints.
func resumeDrops(fits func(sees func(script string) string, path string) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			if err != nil {
				return h, err
			}
			sees := func(script string) string {
				out, _ := inside(ctx, p, h.Value.InstanceID, script, nil)
				return string(out)
			}
			for _, name := range strings.Fields(sees("ls -A " + sandbox.OutputPath)) {
				if path := sandbox.OutputPath + "/" + name; fits(sees, path) {
					sees("rm -rf " + path)
					env.Fire()
				}
			}
			return h, nil
		}}
	}
}
