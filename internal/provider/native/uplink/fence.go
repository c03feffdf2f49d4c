package uplink

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// fence is the table of one machine, on the host's side of its link.
type fence struct {
	id       string
	device   string // the host's end of the link
	machine  netip.Addr
	resolver netip.Addr
	most     uint32 // of its connections that the host keeps in mind
}

// maxConnections is how many connections of one machine the host keeps in mind
// at a time. The kernel's table of them is one for the whole host, and one that
// is full takes no connection of anybody.
const maxConnections = 8192

func tableOf(id string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: "checkfu-" + id}
}

// chains is what a fence is made of, chain by chain and rule by rule.
//
// A packet that is refused is answered, so that a program is told at once. One
// from outside that belongs to nothing the machine began is not.
func (f fence) chains(special *nftables.Set) []chain {
	resolver := func(protocol byte) []expr.Any {
		return join(to(f.resolver), l4(protocol), port(53), accept)
	}
	return []chain{
		// One count of all, whichever way a connection takes.
		{name: "counted", rules: [][]expr.Any{
			join([]expr.Any{&expr.Connlimit{Count: f.most, Flags: expr.NFT_CONNLIMIT_F_INV}}, drop),
		}},
		{"input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, [][]expr.Any{
			join(iif(expr.CmpOpNeq, f.device), accept),
			join(isIPv4(expr.CmpOpNeq), drop),
			join(from(expr.CmpOpNeq, f.machine), drop),
			join(began, counted),
			resolver(unix.IPPROTO_UDP), resolver(unix.IPPROTO_TCP), // one that the host runs itself
			reset, refuse,
		}},
		{"forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, [][]expr.Any{
			join(iif(expr.CmpOpNeq, f.device), accept),
			join(isIPv4(expr.CmpOpNeq), drop),
			join(from(expr.CmpOpNeq, f.machine), drop),
			join(began, counted),
			resolver(unix.IPPROTO_UDP), resolver(unix.IPPROTO_TCP),
			join(toAny(special), reset), join(toAny(special), refuse),
		}},
		// After every machine's forward, so that one that calls another is told.
		{"inbound", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 1), [][]expr.Any{
			join(oif(f.device), established, accept),
			join(oif(f.device), drop),
		}},
		{"out", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, [][]expr.Any{
			join(isIPv4(expr.CmpOpEq), from(expr.CmpOpEq, f.machine), []expr.Any{&expr.Masq{}}),
		}},
	}
}

// chain is a hook with its rules, or rules without one; what no rule decides passes.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    [][]expr.Any
}

// loadFence installs the table whole or not at all, in the thread's namespace.
// One of the same id is replaced.
func loadFence(f fence) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := tableOf(f.id)
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	// The number is the transaction's own. One that the library gives is counted in a
	// variable that machines which open at the same time would race for.
	special := &nftables.Set{ID: 1, Table: table, Name: "special", Interval: true, Constant: true, KeyType: nftables.TypeIPAddr}
	if err := c.AddSet(special, intervals()); err != nil {
		return err
	}
	for _, ch := range f.chains(special) {
		at := c.AddChain(&nftables.Chain{Name: ch.name, Table: table, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: at, Exprs: r})
		}
	}
	return c.Flush()
}

// unloadFence removes the table of an id, if it is there.
func unloadFence(id string) error {
	c, err := tables()
	if err != nil {
		return err
	}
	c.DelTable(tableOf(id))
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	return nil
}

// standing says what of the table of an id is not there.
func standing(id string) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := tableOf(id)
	for _, want := range (fence{}).chains(&nftables.Set{}) {
		rules, err := c.GetRules(table, &nftables.Chain{Name: want.name, Table: table})
		if err != nil {
			return fmt.Errorf("table %s, chain %s: %w", table.Name, want.name, err)
		}
		if len(rules) != len(want.rules) {
			return fmt.Errorf("table %s, chain %s: expected %d rules, got %d", table.Name, want.name, len(want.rules), len(rules))
		}
	}
	return nil
}

// tables speaks to the packet filter of the thread's namespace. The kernel
// answers each rule of a batch at once, before the first answer is read.
func tables() (*nftables.Conn, error) {
	const answers = 4 << 20
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetReadBuffer(answers) }))
}

// intervals are the blocks of IPv4 that are not public, each once: of nested
// ones the outermost.
func intervals() []nftables.SetElement {
	var all []netip.Prefix
	for _, r := range policy.Rows() {
		all = append(all, r.Prefixes()...)
	}
	var elements []nftables.SetElement
	for _, p := range all {
		nested := slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) })
		if nested || !p.Addr().Is4() {
			continue
		}
		elements = append(elements, nftables.SetElement{Key: p.Addr().AsSlice()})
		if next := last(p).Next(); next.IsValid() { // else it is open to the end
			elements = append(elements, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

// last is the highest address of a block.
func last(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}

// The conditions and ends of rules.
var (
	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop   = []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	// A reset comes always; of the other answer the host gives one a second.
	reset  = join(l4(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	refuse = []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}

	established = state(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	began       = state(expr.CtStateBitNEW)
	counted     = []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "counted"}}
)

func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

func meta(key expr.MetaKey, op expr.CmpOp, data []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

func iif(op expr.CmpOp, device string) []expr.Any {
	return meta(expr.MetaKeyIIFNAME, op, ifname(device))
}
func oif(device string) []expr.Any { return meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, ifname(device)) }
func l4(protocol byte) []expr.Any  { return meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{protocol}) }
func isIPv4(op expr.CmpOp) []expr.Any {
	return meta(expr.MetaKeyNFPROTO, op, []byte{unix.NFPROTO_IPV4})
}
func to(a netip.Addr) []expr.Any                  { return header(16, expr.CmpOpEq, a) }
func from(op expr.CmpOp, a netip.Addr) []expr.Any { return header(12, op, a) }

// header compares an address of an IPv4 header.
func header(offset uint32, op expr.CmpOp, a netip.Addr) []expr.Any {
	return []expr.Any{load(offset), &expr.Cmp{Op: op, Register: 1, Data: a.AsSlice()}}
}

func toAny(set *nftables.Set) []expr.Any {
	return []expr.Any{load(16), &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID}}
}

func load(offset uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
}

func port(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
	}
}

func state(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Xor: make([]byte, 4), Mask: binaryutil.NativeEndian.PutUint32(bits)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
