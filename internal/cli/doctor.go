package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

type doctorDocument struct {
	Schema               string         `json:"schema"`
	State                string         `json:"state"`
	Drivers              []doctorDriver `json:"drivers"`
	Image                string         `json:"image,omitzero"` // the default one
	MemoryBytes          int64          `json:"memory_bytes"`
	MemoryAvailableBytes int64          `json:"memory_available_bytes"`
	DiskFreeBytes        int64          `json:"disk_free_bytes"`
	Notes                []string       `json:"notes"`
}

type doctorDriver struct {
	Name  string       `json:"name"`
	Ready bool         `json:"ready"`
	Lacks []doctorLack `json:"lacks"`
}

type doctorLack struct {
	Axis   string `json:"axis,omitzero"`
	What   string `json:"what"`
	Remedy string `json:"remedy,omitzero"`
}

// zeroRetention is what a person must know before they size a machine.
const zeroRetention = "a machine's writable storage lies in memory and leaves no trace: it can cost --memory plus --disk (2GiB + 4GiB by default)"

func (a *app) doctorCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this machine can do, what is missing, and how to get it", Args: noArguments,
		Long:    "Look at this machine without starting anything. Ends with 0 if the default\nprovider (gVisor) can run here, else with 1.",
		Example: "  checkfu doctor\n  checkfu doctor --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := a.stateDir()
			if err != nil {
				return err
			}
			doc := a.examine(cmd, dir)
			if !doc.Drivers[0].Ready {
				a.code = ExitNotReady
			}
			if asJSON {
				return a.printJSON(doc)
			}
			return a.printDoctor(doc)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	return cmd
}

func (a *app) examine(cmd *cobra.Command, dir string) doctorDocument {
	doc := doctorDocument{Schema: "checkfu.doctor.v1", State: strings.ToValidUTF8(dir, "\uFFFD"), Notes: []string{zeroRetention}}
	_, unusable := a.usableState()
	for _, name := range all.Hosts() {
		d := doctorDriver{Name: name}
		if unusable != nil {
			d.Lacks = append(d.Lacks, doctorLack{What: unusable.Error()})
		} else if o, err := all.Open(name, all.Options{Dir: dir}); err != nil {
			d.Lacks = append(d.Lacks, doctorLack{What: argument.OneLine(err.Error())})
		} else {
			for _, l := range o.Host.Lacks(cmd.Context()) {
				d.Lacks = append(d.Lacks, doctorLack{Axis: l.Axis, What: l.What, Remedy: l.Remedy})
			}
			if err := o.Host.Unrestricted(); err != nil && name == all.NativeRunsc && asRoot() { // the same for both of root's
				doc.Notes = append(doc.Notes, "--network unrestricted cannot be had here: "+argument.OneLine(err.Error()))
			}
			if name == all.NativeRunsc && asRoot() { // likewise
				how, err := o.Host.Keeps(cmd.Context())
				if err != nil {
					how = "cannot be had here: " + argument.OneLine(err.Error())
				}
				doc.Notes = append(doc.Notes, "snapshots of durable machines: "+how)
				doc.Notes = append(doc.Notes, packagesNote(o.Packages(cmd.Context())))
			}
			_ = o.Close() // what this person may not remove is another's
		}
		d.Ready = len(d.Lacks) == 0
		doc.Drivers = append(doc.Drivers, d)
	}
	if !asRoot() {
		doc.Notes = append(doc.Notes, "without root: checkfu run --provider "+all.NativeRootless+", with --allow or no network; sessions, --keep, --network unrestricted, serving and testing of providers of this host and egress test are root's")
	}
	if err := all.Allowlist(); err != nil {
		doc.Notes = append(doc.Notes, "--allow cannot be had here: "+argument.OneLine(err.Error()))
	}
	doc.Image = defaultImageOf(cmd, dir)
	doc.MemoryBytes, doc.MemoryAvailableBytes = memory()
	doc.DiskFreeBytes = diskFree(dir)
	return doc
}

// asRoot reports whether this process is the host's root.
func asRoot() bool { return os.Geteuid() == 0 && !userns.Inside() }

// defaultImageOf looks without making a store.
func defaultImageOf(cmd *cobra.Command, dir string) string {
	images := filepath.Join(dir, "images")
	if !argument.IsDir(images) {
		return ""
	}
	store, err := image.Open(images, image.Options{})
	if err != nil {
		return ""
	}
	ref, err := resolveImage(cmd.Context(), store, "")
	if err != nil {
		return ""
	}
	return ref
}

func memory() (total, available int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 54)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available
}

// diskFree asks the nearest directory that is there.
func diskFree(dir string) int64 {
	for ; ; dir = filepath.Dir(dir) {
		var s unix.Statfs_t
		if unix.Statfs(dir, &s) == nil {
			return int64(s.Bavail) * s.Bsize
		}
		if dir == filepath.Dir(dir) {
			return 0
		}
	}
}

func (a *app) printDoctor(doc doctorDocument) error {
	var text strings.Builder
	for i, d := range doc.Drivers {
		about := [...]string{"gVisor, a kernel of its own; the default", "runc, shares this machine's kernel", "gVisor for an ordinary user; resource limits are not enforced"}[i]
		verdict := "ready"
		if !d.Ready {
			verdict = "cannot run here"
		}
		fmt.Fprintf(&text, "%-13s %s (%s)\n", d.Name, verdict, about)
		for _, l := range d.Lacks {
			what := l.What
			if l.Axis != "" {
				what += " (needed for " + l.Axis + ")"
			}
			if l.Remedy != "" {
				what += ": " + l.Remedy
			}
			fmt.Fprintf(&text, "  missing     %s\n", argument.Printable(what))
		}
	}
	base := doc.Image
	if base == "" {
		base = "none yet; make one with: checkfu image build-base"
	}
	fmt.Fprintf(&text, "%-13s %s\n", "image", argument.Printable(base))
	fmt.Fprintf(&text, "%-13s %s, %s of it available\n", "memory", argument.Bytes(doc.MemoryBytes), argument.Bytes(doc.MemoryAvailableBytes))
	fmt.Fprintf(&text, "%-13s %s free in %s\n", "disk", argument.Bytes(doc.DiskFreeBytes), argument.Printable(doc.State))
	for _, n := range doc.Notes {
		fmt.Fprintf(&text, "%-13s %s\n", "note", argument.Printable(n))
	}
	_, err := io.WriteString(a.stdout, text.String())
	return err
}
