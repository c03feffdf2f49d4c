package all

import (
	"path/filepath"

	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// builder makes images with packages. Its machines have a directory of their own,
// common to all areas and drivers of a state directory: what is built for one is
// built for all, once.
func builder(o Options, driver machine.Driver, init []byte) (*native.Builder, error) {
	r, err := o.registries()
	if err != nil {
		return nil, err
	}
	images, _ := o.Images.(native.ImageStore) // none sweeps, and builds nothing
	return native.NewBuilder(native.BuilderOptions{
		Dir: filepath.Join(o.Dir, "builds"), Driver: driver, Images: images, Init: init, Egress: egress(o),
		Registries: r, Progress: o.Building,
	})
}
