package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	ours         = "guard"
	ourTLS       = "guard (tls)"
	theOther     = "guard (the other build)"
	egressSlice  = 1200 * time.Millisecond
	egressRounds = 4    // that count
	egressNames  = 1022 // below each host, all of them listed: as many as a list may have
	heldTunnels  = 1000
	heldBytes    = 64 << 10
)

// The guard beside proxies of others: the same client, origin and resolver, the
// same bytes, each side a slice of time and then the next. What counts is the CPU
// time of the proxy's own process, by its clock, which other work on the machine
// does not lengthen; what the clock on the wall says is beside it.

func egressConnect(ctx context.Context, w *world) error {
	return w.withProxies(ctx, func(n *egressNet, all []proxy) error {
		for _, c := range []struct {
			at      string
			clients int
			names   int64
		}{{"one at a time", 1, 0}, {"16 at once", 16, 0}, {"one at a time, each to another name", 1, egressNames}} {
			if err := n.connects(ctx, w, all, c.at, c.clients, c.names); err != nil {
				return err
			}
		}
		return n.denials(ctx, w, all)
	})
}

func egressBulk(ctx context.Context, w *world) error {
	return w.withProxies(ctx, func(n *egressNet, all []proxy) error { return n.bulks(ctx, w, without(all, ourTLS), 2) })
}

func egressTunnels(ctx context.Context, w *world) error {
	return w.withProxies(ctx, func(n *egressNet, all []proxy) error { return n.tunnels(ctx, w, without(all, ourTLS)) })
}

// withProxies starts all of them in a network of their own, and ends them.
func (w *world) withProxies(ctx context.Context, measure func(*egressNet, []proxy) error) (err error) {
	n, err := newEgressNet(w)
	if err != nil {
		return err
	}
	var all []proxy
	defer func() {
		for _, p := range all {
			if p.stop != nil {
				err = errors.Join(err, p.stop())
			}
		}
		err = errors.Join(err, n.close())
	}()
	start := func(p proxy, err error) error {
		all = append(all, p)
		return err
	}
	next := func(name string) proxy { return proxy{name: name, side: len(all)} }
	for _, name := range []string{ours, ourTLS} {
		if err := start(startGuard(ctx, w, n, next(name), "")); err != nil {
			return err
		}
	}
	for _, e := range peersOfGuard {
		if err := start(e.start(ctx, w, n, next(e.program))); err != nil {
			return err
		}
	}
	if w.guard != "" {
		if err := start(startGuard(ctx, w, n, next(theOther), w.guard)); err != nil {
			return err
		}
	}
	return measure(n, all)
}

// sliced gives each proxy that runs its turn, and once before that does not
// count. It answers what the slice's meter says, by the proxy's name.
func sliced(ctx context.Context, all []proxy, slice func(ctx context.Context, p proxy) (map[string]float64, error)) (map[string]map[string]samples, error) {
	got := map[string]map[string]samples{}
	for round := -1; round < egressRounds; round++ {
		for _, p := range all {
			if p.missing != "" {
				continue
			}
			values, err := slice(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			if round < 0 {
				continue
			}
			if got[p.name] == nil {
				got[p.name] = map[string]samples{}
			}
			for what, value := range values {
				got[p.name][what] = append(got[p.name][what], value)
			}
		}
	}
	return got, nil
}

// spent is the CPU time of a proxy while f runs, and until it has done what is
// left to do behind the answers.
func spent(ctx context.Context, p proxy, f func() error) (time.Duration, error) {
	before := processCPU(p.pid)
	if err := f(); err != nil {
		return 0, err
	}
	if err := pause(ctx, 30*time.Millisecond); err != nil {
		return 0, err
	}
	return processCPU(p.pid) - before, nil
}

// connects is a request, 64 bytes there and back, and its end.
func (n *egressNet) connects(ctx context.Context, w *world, all []proxy, at string, clients int, names int64) error {
	if names > 0 {
		all = without(all, ourTLS) // a hello names one host
	}
	got, err := sliced(ctx, all, func(ctx context.Context, p proxy) (map[string]float64, error) {
		var o outcome
		cpu, err := spent(ctx, p, func() (err error) {
			o, err = n.tell(ctx, order{Do: "connect", Proxy: p.address().String(), Target: p.target(echoPort), Clients: clients, For: egressSlice, Names: names, Hello: p.name == ourTLS})
			return err
		})
		return map[string]float64{
			"cpu":  float64(cpu.Microseconds()) / float64(o.Done),
			"p50":  millis(o.P50),
			"rate": float64(o.Done) / o.Took.Seconds(),
		}, err
	})
	if err != nil {
		return err
	}
	w.rep.compare(all, got, "cpu", line{what: "egress: CPU of a CONNECT, " + at, unit: "µs", bound: 1.2})
	w.rep.compare(all, got, "p50", line{what: "egress: the same by the clock, p50", unit: "ms"})
	w.rep.note("egress: requests each second, %s: %s", at, eachSide(all, got, "rate", "%.0f"))
	return nil
}

// bulks is what an origin sends through some tunnels at once.
func (n *egressNet) bulks(ctx context.Context, w *world, all []proxy, tunnels int) error {
	got, err := sliced(ctx, all, func(ctx context.Context, p proxy) (map[string]float64, error) {
		var o outcome
		cpu, err := spent(ctx, p, func() (err error) {
			o, err = n.tell(ctx, order{Do: "bulk", Proxy: p.address().String(), Target: p.target(bulkPort), Clients: tunnels, For: egressSlice})
			return err
		})
		gb := float64(o.Bytes) / 1e9
		return map[string]float64{"cpu": millis(cpu) / gb, "wall": millis(o.Took) / gb, "rate": 8 * gb / o.Took.Seconds()}, err
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("egress: 1 GB down, %d tunnels", tunnels)
	w.rep.compare(all, got, "wall", line{what: what, unit: "ms", bound: 1})
	w.rep.compare(all, got, "cpu", line{what: what + ": CPU", unit: "ms"})
	w.rep.note("egress: Gbit/s down, %d tunnels: %s", tunnels, eachSide(all, got, "rate", "%.1f"))
	return nil
}

// denials is a request for a host that is not listed.
func (n *egressNet) denials(ctx context.Context, w *world, all []proxy) error {
	got, err := sliced(ctx, all[:1], func(ctx context.Context, p proxy) (map[string]float64, error) {
		var o outcome
		cpu, err := spent(ctx, p, func() (err error) {
			o, err = n.tell(ctx, order{Do: "connect", Proxy: p.address().String(), Target: "other.test:443", Clients: 1, For: egressSlice / 3, Refused: true})
			return err
		})
		return map[string]float64{"cpu": float64(cpu.Microseconds()) / float64(o.Done), "p99": millis(o.P99)}, err
	})
	if err != nil {
		return err
	}
	w.rep.add(line{what: "egress: a denial, p99", unit: "ms", ours: got[ours]["p99"], bound: 2},
		line{what: "egress: CPU of a denial", unit: "µs", ours: got[ours]["cpu"]})
	return nil
}

// tunnels are a thousand of them that are open at once: each is used, and then
// idle. The memory is what the proxy's own process has more than after the first
// tunnel of all.
func (n *egressNet) tunnels(ctx context.Context, w *world, all []proxy) error {
	before := map[string]float64{}
	for _, bytes := range []int64{64, heldBytes} {
		got := map[string]map[string]samples{}
		for _, p := range all {
			if p.missing != "" {
				continue
			}
			o := order{Do: "hold", Proxy: p.address().String(), Target: p.target(echoPort), Clients: 1, Exchange: bytes}
			if _, err := n.tell(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if before[p.name] == 0 {
				before[p.name] = residentSet(p.pid)
			}
			o.Clients = heldTunnels
			held, err := n.tell(ctx, o)
			var after float64
			if err == nil {
				err = pause(ctx, 300*time.Millisecond)
				after = residentSet(p.pid)
			}
			if _, failed := n.tell(ctx, order{Do: "let go"}); failed != nil || err != nil {
				return fmt.Errorf("%s: %w", p.name, errors.Join(err, failed))
			}
			got[p.name] = map[string]samples{"memory": {(after - before[p.name]) / 1000 / heldTunnels}, "failed": {float64(heldTunnels - held.Done)}}
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		what := fmt.Sprintf("egress: memory of an idle tunnel, of %d, after %d bytes there and back", heldTunnels, bytes)
		if bytes == 64 {
			w.rep.add(line{what: fmt.Sprintf("egress: failures of %d tunnels at once", heldTunnels), unit: "failures", ours: got[ours]["failed"], strict: true})
		}
		w.rep.add(line{what: what, unit: "KB", ours: got[ours]["memory"], bound: 20})
		w.rep.note("%s: %s", what, eachSide(all, got, "memory", "%.1f KB"))
	}
	return nil
}

func residentSet(pid int) float64 { return kilobytes("/proc/"+strconv.Itoa(pid)+"/status", "VmRSS") }

func without(all []proxy, name string) (rest []proxy) {
	for _, p := range all {
		if p.name != name {
			rest = append(rest, p)
		}
	}
	return rest
}

// compare adds a row for each peer, of which the best is the one that counts,
// and one for each of our own sides beside the first.
func (r *report) compare(all []proxy, got map[string]map[string]samples, of string, row line) {
	for _, p := range all[1:] {
		l := row
		l.ours, l.rawName, l.raw = got[ours][of], p.name, got[p.name][of]
		switch {
		case p.missing != "":
			l.absent = p.missing
		case l.raw == nil:
			continue
		case p.name == ourTLS, p.name == theOther:
			l.bound = 0
		}
		r.add(l)
	}
}

func eachSide(all []proxy, got map[string]map[string]samples, of, format string) string {
	var each []string
	for _, p := range all {
		if s := got[p.name][of]; s != nil {
			each = append(each, fmt.Sprintf("%s "+format, p.name, s.median()))
		}
	}
	return strings.Join(each, ", ")
}
