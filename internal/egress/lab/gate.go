package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Gate is a table of the kernel's packet filter in one namespace, with a counter
// on each rule that refuses.
type Gate struct {
	in    *Namespace
	name  string
	lines []string // what the rules are, in words, for the digest
}

// rule is a list of conditions and what follows from them.
type rule struct {
	name  string // of the counter; "" for one that needs none
	match []match
	end   []expr.Any
}

// match is one condition: a word for the digest and its form.
type match struct {
	word string
	expr []expr.Any
}

// chain is a hook with its rules.
type chain struct {
	name   string
	hook   *nftables.ChainHook
	policy nftables.ChainPolicy
	rules  []rule
}

// tables speaks to the packet filter of the thread's namespace. The kernel
// answers each rule of a batch at once, before the first answer is read.
func tables() (*nftables.Conn, error) {
	const answers = 4 << 20
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetReadBuffer(answers) }))
}

// load installs the table; nothing of it is there where that fails.
func (n *Namespace) load(name string, chains ...chain) (*Gate, error) {
	g := &Gate{in: n, name: name}
	err := n.Do(func() error {
		c, err := tables()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		for _, ch := range chains {
			word := "accept"
			if ch.policy == nftables.ChainPolicyDrop {
				word = "drop"
			}
			g.lines = append(g.lines, fmt.Sprintf("chain %s policy %s", ch.name, word))
			at := c.AddChain(&nftables.Chain{
				Name: ch.name, Table: table, Type: nftables.ChainTypeFilter,
				Hooknum: ch.hook, Priority: nftables.ChainPriorityFilter, Policy: &ch.policy,
			})
			for _, r := range ch.rules {
				c.AddRule(&nftables.Rule{Table: table, Chain: at, Exprs: r.exprs(), UserData: []byte(r.name)})
				g.lines = append(g.lines, "  "+r.words())
			}
		}
		return c.Flush()
	})
	if err != nil {
		return nil, &Error{"load table " + name + " in " + n.Name, err}
	}
	return g, nil
}

func (r rule) exprs() []expr.Any {
	var out []expr.Any
	for _, m := range r.match {
		out = append(out, m.expr...)
	}
	if r.name != "" {
		out = append(out, &expr.Counter{})
	}
	return append(out, r.end...)
}

func (r rule) words() string {
	var words []string
	for _, m := range r.match {
		words = append(words, m.word)
	}
	if r.name != "" {
		words = append(words, "counter "+r.name)
	}
	for _, e := range r.end {
		words = append(words, fmt.Sprintf("%+v", e))
	}
	return strings.Join(words, " ")
}

// Digest is the sha256 of the rules in words, "sha256:" before it.
func (g *Gate) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(g.lines, "\n") + "\n"))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Counts returns the packets of each counter by its name.
// Errors: *Error.
func (g *Gate) Counts() (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := g.in.Do(func() error {
		c, err := tables()
		if err != nil {
			return err
		}
		chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
		if err != nil {
			return err
		}
		for _, ch := range chains {
			if ch.Table.Name != g.name {
				continue
			}
			rules, err := c.GetRules(ch.Table, ch)
			if err != nil {
				return err
			}
			for _, r := range rules {
				for _, e := range r.Exprs {
					if counter, ok := e.(*expr.Counter); ok {
						counts[string(r.UserData)] += counter.Packets
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, &Error{"counters of table " + g.name, err}
	}
	return counts, nil
}

// Unload removes the table.
// Errors: *Error.
func (g *Gate) Unload() error {
	err := g.in.Do(func() error {
		c, err := tables()
		if err != nil {
			return err
		}
		c.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: g.name})
		return c.Flush()
	})
	if err != nil {
		return &Error{"unload table " + g.name, err}
	}
	return nil
}

var (
	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop   = []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	// A reset tells the guard at once what a drop would tell it after a
	// timeout. Of no use to the workload, which never sees either.
	refuse = []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
)

func meta(word string, key expr.MetaKey, data []byte) match {
	return match{word, []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data},
	}}
}

func from(link string) match { return meta("iifname "+link, expr.MetaKeyIIFNAME, ifname(link)) }
func over(link string) match { return meta("oifname "+link, expr.MetaKeyOIFNAME, ifname(link)) }

func protocol(p byte) match {
	return meta(fmt.Sprintf("l4proto %d", p), expr.MetaKeyL4PROTO, []byte{p})
}

func port(p uint16) match {
	return match{fmt.Sprintf("dport %d", p), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
	}}
}

// in is a destination inside a prefix, or outside it.
func in(p netip.Prefix, op expr.CmpOp) match {
	offset, size, family, name := uint32(16), uint32(4), byte(unix.NFPROTO_IPV4), "ip"
	if !p.Addr().Is4() {
		offset, size, family, name = 24, 16, unix.NFPROTO_IPV6, "ip6"
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	word := name + " daddr "
	if op == expr.CmpOpNeq {
		word += "!= "
	}
	return match{word + p.Masked().String(), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}}
}

func to(p netip.Prefix) match      { return in(p, expr.CmpOpEq) }
func outside(p netip.Prefix) match { return in(p, expr.CmpOpNeq) }

// established is a packet of a connection that was let through before.
func established() match {
	return match{"ct state established,related", []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4, Xor: make([]byte, 4),
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}}
}

// reset is a TCP segment that ends a connection.
func reset() match {
	const flags, rst = 13, 4
	return match{"tcp flags rst", []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{rst}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}},
	}}
}

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
