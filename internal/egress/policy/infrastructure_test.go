package policy_test

import (
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

func addresses(text ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range text {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func TestOneBadAddressRefusesTheAnswer(t *testing.T) {
	ours, err := policy.NewInfrastructure(addresses(
		"45.33.32.53",               // the resolver, public by its number
		"10.99.0.2",                 // the plane
		"2a00:1450:4001:10::53",     // the resolver's other address
		"::ffff:45.33.32.54",        // given mapped
		"2a00:1450:4001:10::1%eth0", // an interface's, with its zone
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id      string
		answers []netip.Addr
		reason  policy.Reason
		status  int
	}{
		{"P54", addresses("9.255.255.255"), "", 0},
		{"P85", addresses("45.33.32.10", "45.33.32.11", "2a00:1450:4001:10::10"), "", 0},
		{"", addresses("::ffff:45.33.32.10"), "", 0},
		{"P68", addresses("45.33.32.10", "10.77.0.10"), policy.ReasonAnswerNotPublic, 403},
		{"P68", addresses("10.77.0.10", "45.33.32.10"), policy.ReasonAnswerNotPublic, 403},
		{"P69", addresses("45.33.32.10", "fd00:77::10"), policy.ReasonAnswerNotPublic, 403},
		{"P76", addresses("45.33.32.54"), policy.ReasonInfraAddress, 403},
		{"P77", addresses("45.33.32.53"), policy.ReasonInfraAddress, 403},
		{"P77", addresses("45.33.32.10", "2a00:1450:4001:10::53"), policy.ReasonInfraAddress, 403},
		{"P77", addresses("2a00:1450:4001:10::1"), policy.ReasonInfraAddress, 403},
		{"P77", addresses("::ffff:45.33.32.53"), policy.ReasonInfraAddress, 403},
		{"A05", addresses("10.99.0.2"), policy.ReasonInfraAddress, 403},
		{"P78", addresses("168.63.129.16"), policy.ReasonAnswerNotPublic, 403},
		{"P79", nil, policy.ReasonResolveFailed, 502},
		{"P86", many(32), "", 0},
		{"P86", many(33), policy.ReasonAnswerNotPublic, 403},
		{"", []netip.Addr{{}}, policy.ReasonAnswerNotPublic, 403},
		// Where a denied metadata address stays reachable elsewhere.
		{"B37", addresses("169.254.169.254"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("fd00:ec2::254"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("172.17.0.1"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("192.168.65.254"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("0.0.0.0"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("::"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("127.0.0.1"), policy.ReasonAnswerNotPublic, 403},
		{"B37", addresses("::1"), policy.ReasonAnswerNotPublic, 403},
	} {
		err := ours.Answers(c.answers)
		var refusal *policy.Refusal
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s %v: %v", c.id, c.answers, err)
			}
		} else if !errors.As(err, &refusal) || refusal.Reason != c.reason || refusal.Status != c.status {
			t.Errorf("%s %v: got %v, expected %s %d", c.id, c.answers, err, c.reason, c.status)
		}
	}
}

func many(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = netip.MustParseAddr("45.33.32." + strconv.Itoa(i+1))
	}
	return all
}

// P88, P90: the same judgement where nothing can get in between any more.
func TestWhatIsConnectedIsJudgedAgain(t *testing.T) {
	ours, err := policy.NewInfrastructure(addresses("45.33.32.53"))
	if err != nil {
		t.Fatal(err)
	}
	for text, admitted := range map[string]bool{
		"45.33.32.10": true, "2606:4700:4700::1111": true, "::ffff:45.33.32.10": true,
		"10.77.0.10": false, "::ffff:10.77.0.10": false, "fe80::1%eth0": false, "45.33.32.53": false, "::ffff:45.33.32.53": false,
	} {
		if err := ours.Connect(netip.MustParseAddr(text)); (err == nil) != admitted || err != nil && !errors.Is(err, policy.ReasonConnectNotPublic) {
			t.Errorf("%s: %v, expected admitted %v", text, err, admitted)
		}
	}
	if err := ours.Connect(netip.Addr{}); !errors.Is(err, policy.ReasonConnectNotPublic) {
		t.Errorf("no address: %v", err)
	}
	var none policy.Infrastructure
	if none.Connect(netip.MustParseAddr("45.33.32.53")) != nil || none.Connect(netip.MustParseAddr("10.0.0.1")) == nil {
		t.Error("the zero set does not judge by the rows alone")
	}
}

func TestAnInfrastructureThatNamesNothingIsRefused(t *testing.T) {
	for field, list := range map[string][]netip.Addr{
		"infra_addrs[1]": {netip.MustParseAddr("10.0.0.1"), {}},
		"infra_addrs":    make([]netip.Addr, policy.MaxInfrastructure+1),
	} {
		_, err := policy.NewInfrastructure(list)
		var bad *sandbox.Invalid
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
