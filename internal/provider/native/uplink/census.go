package uplink

import (
	"strings"

	"github.com/vishvananda/netlink"
)

// Census names every link and table of uplinks in the host's network, whoever
// made them, sorted by kind: "link checkfu7", "table checkfu-ID".
// Errors: *Error.
func (h *Host) Census() (found []string, err error) {
	err = h.within(func() error {
		links, err := dump(netlink.LinkList)
		if err != nil {
			return err
		}
		for _, link := range links {
			if strings.HasPrefix(link.Attrs().Alias, alias("")) {
				found = append(found, "link "+link.Attrs().Name)
			}
		}
		c, err := tables()
		if err != nil {
			return err
		}
		all, err := c.ListTables()
		for _, table := range all {
			if strings.HasPrefix(table.Name, tableOf("").Name) {
				found = append(found, "table "+table.Name)
			}
		}
		return err
	})
	if err != nil {
		return nil, &Error{"look for links and tables", err}
	}
	return found, nil
}
