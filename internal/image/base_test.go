package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBuildBase builds a real image, twice where CHECKFU_TEST_BUILD is "twice".
// It takes minutes and the distribution's mirror, so it has to be asked for.
func TestBuildBase(t *testing.T) {
	times := map[string]int{"": 0, "once": 1, "twice": 2}[os.Getenv("CHECKFU_TEST_BUILD")]
	if times == 0 {
		t.Skip("set CHECKFU_TEST_BUILD=once or twice to build a base image")
	}
	var digests []string
	for range times {
		said := 0
		s := openStore(t, Options{Progress: func(p Progress) {
			if p.Stage == "build" {
				said++
			}
		}})
		start := time.Now()
		img, err := s.BuildBase(t.Context(), BaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		built := time.Since(start)
		r, err := s.Rootfs(t.Context(), img.Digest)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %d MiB: build %v, unpack %v", img.Reference, img.Size>>20, built, time.Since(start)-built)
		if said == 0 {
			t.Error("no progress")
		}
		for _, argv := range [][]string{{"git", "--version"}, {"python3", "-c", "print(1)"}, {"ps", "--version"}, {"id", "checkfu"}} {
			// Mounts end with the namespace; the tree itself stays as it is.
			script := `mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"`
			cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", script, r.Path}, argv...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v %s", argv, err, out)
			}
		}
		for _, gone := range []string{"etc/machine-id", "etc/hostname", "etc/resolv.conf", "var/log/*", "var/cache/*/*", "etc/apt/sources.list*/*", "dev/*", "tmp/*", "run/*"} {
			found, err := filepath.Glob(filepath.Join(r.Path, gone))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if info, _ := os.Lstat(f); !info.IsDir() {
					t.Errorf("%s is there", f)
				}
			}
		}
		if err := s.Verify(t.Context(), img.Digest); err != nil {
			t.Error(err)
		}
		if names, _ := os.ReadDir(s.path("tmp")); len(names) != 0 {
			t.Errorf("left in tmp: %v", names)
		}
		if at := os.Getenv("CHECKFU_TEST_KEEP"); at != "" {
			if out, err := exec.Command("cp", "-a", s.dir, filepath.Join(at, strings.TrimPrefix(img.Digest, "sha256:"))).CombinedOutput(); err != nil {
				t.Fatal(string(out), err)
			}
		}
		r.Release()
		digests = append(digests, img.Digest)
	}
	if slices.Sort(digests); len(slices.Compact(digests)) != 1 {
		t.Errorf("two builds differ: %v", digests)
	}
}

func TestBuildBaseRefusals(t *testing.T) {
	s := openStore(t, Options{})
	before := snapshot(t, s.dir)
	for name, o := range map[string]BaseOptions{
		"option as suite":   {Suite: "--mode=chrootless"},
		"option as package": {Packages: []string{"git", "-x"}},
		"two packages":      {Packages: []string{"git,curl"}},
		"unknown suite":     {Suite: "nosuchsuite"},
		"name":              {Name: "../x"},
	} {
		if _, err := s.BuildBase(t.Context(), o); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	_, err := s.BuildBase(t.Context(), BaseOptions{})
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "Debian package mmdebstrap") {
		t.Errorf("without mmdebstrap: %v", err)
	}
	if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
		t.Errorf("a refusal changed the store: %s", diff)
	}
}

func TestNormalise(t *testing.T) {
	at := func(unix int64) func(*tar.Header) {
		return func(h *tar.Header) { h.ModTime = time.Unix(unix, 500); h.Uname = "builder"; h.Format = tar.FormatPAX }
	}
	in := layerOf(t,
		e{name: "./", kind: tar.TypeDir, extra: at(1)},
		e{name: "./dev/", kind: tar.TypeDir}, e{name: "./dev/null", kind: tar.TypeChar}, e{name: "./dev/fd", kind: tar.TypeSymlink, link: "/proc/self/fd"},
		e{name: "./etc/passwd", body: "root:x:0:0::/root:/bin/sh\n", extra: at(1 << 32)},
		e{name: "./etc/machine-id", body: "secret"}, e{name: "./etc/hostname", body: "secret"}, e{name: "./etc/resolv.conf", body: "secret"},
		e{name: "./etc/apt/sources.list", body: "secret"},
		e{name: "./var/log/", kind: tar.TypeDir}, e{name: "./var/log/apt/", kind: tar.TypeDir}, e{name: "./var/log/apt/history.log", body: "secret"},
		e{name: "./var/lib/apt/lists/", kind: tar.TypeDir}, e{name: "./var/lib/apt/lists/partial/", kind: tar.TypeDir},
		e{name: "./usr/bin/tool", body: "x", mode: 0o4755, extra: at(5)}, e{name: "./usr/bin/tool2", kind: tar.TypeLink, link: "./usr/bin/tool"},
	)
	var out bytes.Buffer
	if err := normalise(t.Context(), bytes.NewReader(in), &out, BaseEpoch); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r)
		if bytes.Contains(body, []byte("secret")) || h.Uname != "" || h.ModTime.After(BaseEpoch) || h.ModTime.Nanosecond() != 0 {
			t.Errorf("%s keeps what it should not: %+v", h.Name, h)
		}
		got = append(got, h.Name)
		if h.Name == "./etc/passwd" && !strings.HasSuffix(string(body), "\ncheckfu:x:10001:10001:checkfu:/home/checkfu:/bin/sh\n") {
			t.Errorf("passwd: %s", body)
		}
		if h.Name == "./usr/bin/tool" && (h.Mode != 0o4755 || h.ModTime.Unix() != 5) {
			t.Errorf("tool: %+v", h)
		}
	}
	want := []string{"./", "./dev/", "./etc/passwd", "./var/log/", "./var/log/apt/", "./var/lib/apt/lists/", "./usr/bin/tool", "./usr/bin/tool2",
		"./home/checkfu/", "./workspace/", "./mnt/session/", "./mnt/session/outputs/"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAptSources(t *testing.T) {
	targets := strings.Join([]string{
		"http://mirror/debian/|bookworm|main|$(SIGNED_BY)|Packages",
		"http://mirror/debian/|bookworm|main|$(SIGNED_BY)|DEP-11",
		"http://mirror/debian/|bookworm|main|$(SIGNED_BY)|Packages",
		"http://mirror/security/|bookworm-security|main|/usr/share/keyrings/k.gpg|Packages",
		"http://mirror/debian/|bookworm-backports|main||Packages",
		"http://else/|nodistro|main||Packages",
		"nonsense",
	}, "\n")
	got, err := sourcesOf([]byte(targets), "bookworm")
	want := []string{
		"deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror/security/ bookworm-security main",
		"deb http://mirror/debian/ bookworm main",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := sourcesOf([]byte(targets), "trixie"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown suite: %v", err)
	}
}
