package gvisor

import (
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine/machinetest"
)

func TestPause(t *testing.T) { machinetest.Pause(t, start(t), env) }
