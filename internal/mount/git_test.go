package mount

import "testing"

func TestSmoke(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, `
echo one >a; echo two >b; printf 'no newline' >c; : >empty; head -c 3000 /dev/urandom >bin
mkdir d; echo x >d/x; echo run >d/run; chmod +x d/run
ln -s a l; ln -s /nowhere dangling
printf '.env\nbuild/\n' >.gitignore
git add .; git commit -qm one
echo SECRET >.env; mkdir build; echo o >build/o; echo new >untracked
echo more >>a; rm b; chmod +x c
echo staged >s; git add s`)
	p := w.plan(GitOptions{})
	t.Log(p.Summary)
	for _, f := range p.Files {
		t.Log(f.Path, f.Size, f.Executable)
	}
	t.Log(p.Skips)
	w.stage(p)
	t.Logf("\n%s--\n%s", w.git(w.box, "status", "--porcelain"), w.git(w.repo, "status", "--porcelain"))
	c := w.roundTrip(p, `echo z >>a; rm d/x; chmod -x d/run; head -c 4000 /dev/urandom >bin; echo n >new; mkdir build; echo 1 >build/p; echo y>.env; ln -s ../x q; echo c >>c; : >empty2; rm empty`, "l", "dangling", ".env", "build/o", "build/p", "untracked")
	t.Log(c.Summary(), c)
}
