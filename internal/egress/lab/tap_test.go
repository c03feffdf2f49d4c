package lab

import (
	"encoding/hex"
	"strings"
	"testing"
)

// frames are packets as they lie on an Ethernet link.
var frames = map[string]struct {
	hex  string
	want Flow
}{
	"syn": {
		"020000000001020000000002 0800 4500003c00004000 40060000 2d212702 2d21200a c001 01bb 00000001 00000000 a002ffff 00000000 020405b40402080a0000000000000000 01030307",
		Flow{Protocol: TCP, Source: addr("45.33.39.2"), Destination: at("45.33.32.10:443"), SYN: true},
	},
	"syn of multipath": {
		"020000000001020000000002 0800 4500003800004000 40060000 2d212702 2d21200a c001 01bb 00000001 00000000 7002ffff 00000000 1e040081 01010101",
		Flow{Protocol: TCP, Source: addr("45.33.39.2"), Destination: at("45.33.32.10:443"), SYN: true, Multipath: true},
	},
	"dns over IPv6": {
		"020000000001020000000002 86dd 60000000 0008 11 40 2a001450400100390000000000000002 fd000077000000000000000000000010 c001 0035 0008 0000",
		Flow{Protocol: UDP, Source: addr("2a00:1450:4001:39::2"), Destination: at("[fd00:77::10]:53")},
	},
	"echo over IPv6": {
		"020000000001020000000002 86dd 60000000 0004 3a 40 2a001450400100390000000000000002 fd000077000000000000000000000010 80000000",
		Flow{Protocol: ICMPv6, Source: addr("2a00:1450:4001:39::2"), Destination: at("[fd00:77::10]:0")},
	},
	"group membership behind an option": {
		"020000000001020000000002 86dd 60000000 000c 00 01 fe800000000000000000000000000200 ff020000000000000000000000000016 3a00050200000100 8f000000",
		Flow{Protocol: Neighbour, Source: addr("fe80::200"), Destination: at("[ff02::16]:0")},
	},
	"arp": {"ffffffffffff020000000002 0806 0001", Flow{Protocol: Neighbour}},
	"GRE": {
		"020000000001020000000002 0800 4500001400004000 402f0000 2d212702 0a4d000a",
		Flow{Protocol: Other, Source: addr("45.33.39.2"), Destination: at("10.77.0.10:0")},
	},
	"shorter than it says": {"020000000001020000000002 0800 4f00", Flow{Protocol: Other}},
	"nothing":              {"", Flow{Protocol: Other}},
}

func frame(t testing.TB, text string) []byte {
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseFrames(t *testing.T) {
	for name, c := range frames {
		if got := parse(frame(t, c.hex)); got != c.want {
			t.Errorf("%s: want %+v, got %+v", name, c.want, got)
		}
	}
}

// FuzzParse: no frame stops the tap, and nothing that leaves the link is taken
// for the link's own talk but what ICMPv6 says it is.
func FuzzParse(f *testing.F) {
	for _, c := range frames {
		f.Add(frame(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := parse(data)
		if got.Protocol == Neighbour && got.Destination.IsValid() && !got.Source.Is6() {
			t.Errorf("%+v is no neighbour's talk", got)
		}
	})
}
