package client

import (
	"context"
	"github.com/checkfu/checkfu/sandbox"
)

func (c *Client) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	return nil, absent(sandbox.OpOpenProcess, nil)
}
