package client

import (
	"context"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// ListDir names every regular file below a root, page by page.
func (c *Client) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	var entries []sandbox.DirEntry
	err := c.list(ctx, wire.ListDir, id, l, func(b *body) error {
		entries = []sandbox.DirEntry{}
		return pages(b, func(data []byte) (int, error) {
			p, err := wire.Decode[wire.DirPage](data)
			entries = append(entries, p.Entries...)
			return len(entries), err
		}, func(data []byte) (int64, error) {
			r, err := wire.Decode[wire.ListResult](data)
			return r.Count, err
		})
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// ListProjectDir names every leaf below a root, page by page.
func (c *Client) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	var listing sandbox.ProjectListing
	err := c.list(ctx, wire.ListProjectDir, id, l, func(b *body) error {
		listing = sandbox.ProjectListing{Leaves: []sandbox.Leaf{}}
		return pages(b, func(data []byte) (int, error) {
			p, err := wire.Decode[wire.ProjectPage](data)
			listing.Leaves = append(listing.Leaves, p.Entries...)
			return len(listing.Leaves), err
		}, func(data []byte) (int64, error) {
			r, err := wire.Decode[wire.ProjectResult](data)
			listing.Complete = r.Complete
			return r.Count, err
		})
	})
	if err != nil {
		return sandbox.ProjectListing{}, err
	}
	return listing, nil
}

func (c *Client) list(ctx context.Context, e wire.Endpoint, id sandbox.InstanceID, l sandbox.Listing, read func(*body) error) error {
	k, err := c.newCall(e, c.leases.of(id), wire.ListRequest{InstanceID: id, Root: l.Root, MaxEntries: l.MaxEntries})
	if err != nil {
		return err
	}
	return c.do(ctx, k, read)
}

// pages reads items, each of which page adds, and the result, which says how
// many entries they hold in all.
func pages(b *body, page func([]byte) (sum int, err error), result func([]byte) (int64, error)) error {
	sum := 0
	return frames(b, func(f wire.Frame) (done bool, err error) {
		switch f.Type {
		case wire.TypeItem:
			before := sum
			sum, err = page(f.Payload)
			switch {
			case err != nil:
				return false, err
			case sum == before:
				return false, broken(b.endpoint, "entries", "at least one in each page", "none")
			case sum > sandbox.MaxListEntries:
				// One over the bound of any listing is a lie about the bound.
				return false, broken(b.endpoint, "entries", "at most "+strconv.Itoa(sandbox.MaxListEntries), strconv.Itoa(sum))
			}
			return false, nil
		case wire.TypeResult:
			count, err := result(f.Payload)
			if err == nil && count != int64(sum) {
				err = broken(b.endpoint, "count", strconv.Itoa(sum)+", which came", strconv.FormatInt(count, 10))
			}
			return true, err
		}
		return false, unexpected(f)
	})
}
