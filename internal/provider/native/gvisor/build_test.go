package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestBuild_RootOfItsOwn: what a build machine may do, and what it may not either.
func TestBuild_RootOfItsOwn(t *testing.T) {
	need(t)
	upper := writable(t)
	m := start(t, func(s *machine.Spec) {
		s.Build = true
		s.Rootfs = filepath.Join(filepath.Dir(upper), "root")
	})
	for _, c := range []struct{ name, script, want string }{
		{"who", "id -u; id -g", "0\n0\n"},
		{"capabilities", "grep -E 'Cap(Eff|Bnd|Prm|Amb)|NoNewPrivs' /proc/self/status | tr -d '\\t'", "CapPrm:00000000000400fb\nCapEff:00000000000400fb\nCapBnd:00000000000400fb\nCapAmb:0000000000000000\nNoNewPrivs:1\n"},
		{"files", "echo made >/etc/made && chown 7:8 /etc/made && chmod 4755 /etc/made && stat -c '%u:%g %a' /etc/made", "7:8 4755\n"},
		{"removal", "rm /bin/text && ls /bin/text 2>/dev/null; true", ""},
		{"device", "mknod /etc/dev c 1 3 2>/dev/null || echo refused", "refused\n"},
		{"mount", "mount -t tmpfs none /home 2>/dev/null || echo refused", "refused\n"},
		{"chroot", "chroot / id -u", "0\n"},
	} {
		got := do(t, m, command("sh", "-c", c.script))
		if got.Code != 0 || got.out != c.want {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
	seen, err := m.Observe(bounded(t))
	if err != nil || !seen.NonRoot || !seen.CapabilitiesZero || !seen.UserNamespace || !seen.NoNewPrivileges || !seen.Seccomp {
		t.Errorf("%+v, %v", seen, err)
	}
	if err := m.Destroy(bounded(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(upper, "etc/made"))
	var st unix.Stat_t
	if serr := unix.Lstat(filepath.Join(upper, "etc/made"), &st); string(text) != "made\n" || err != nil || serr != nil || st.Uid != testBase+7 || st.Gid != testBase+8 || st.Mode&0o7777 != 0o4755 {
		t.Errorf("%q %v %v %+v", text, err, serr, st)
	}
	if err := unix.Lstat(filepath.Join(upper, "bin/text"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("the removed file: %v %o", err, st.Mode)
	}
	if _, err := os.Stat(filepath.Join(shared.root, "bin/text")); err != nil {
		t.Errorf("the shared root was written to: %v", err)
	}
}

// TestBuild_CapabilitiesAreAllKnown: one that the sentry does not know by its name
// would be left out without a word.
func TestBuild_CapabilitiesAreAllKnown(t *testing.T) {
	got := uint64(buildCapabilities().EffectiveCaps)
	n := 0
	for ; got > 0; got &= got - 1 {
		n++
	}
	if want := machine.BuildCapabilities(); n != len(want) {
		t.Errorf("%d of %s", n, strings.Join(want, " "))
	}
}

// writable mounts an overlay over the shared root beside the upper directory that
// it returns.
func writable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, d), testBase, testBase); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV, "lowerdir="+shared.root+",upperdir="+dir+"/upper,workdir="+dir+"/work"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "upper")
}
