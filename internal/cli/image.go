package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Manage the images that machines run on",
		Long: "Images are kept by digest in the state directory. Their layers are unpacked once and\nshared read-only by all machines.",
		Example: `  checkfu image build-base
  checkfu image import app.tar
  checkfu image ls`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("image", "one of import, pull, build-base, ls, rm, verify", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.imageImport(), a.imagePull(), a.imageBuildBase(), a.imageList(), a.imageRemove(), a.imageVerify(),
	)
	return cmd
}

// withStore runs do on the store, until it is done or a signal comes.
func (a *app) withStore(cmd *cobra.Command, do func(ctx context.Context, store *image.Store) error) error {
	ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	bar := a.progress(false)
	defer bar.end()
	store, err := openStore(dir, bar)
	if err != nil {
		return err
	}
	err = do(ctx, store)
	bar.end()
	var wrong *image.Error
	if errors.As(err, &wrong) && wrong.Kind != nil && !errors.Is(err, image.ErrInUse) {
		return argument.Wrong("%v", wrong)
	}
	return err
}

func (a *app) imageImport() *cobra.Command {
	return &cobra.Command{
		Use: "import PATH", Short: "Bring in an OCI layout or a docker-save archive",
		Long:    "Bring in the image of an OCI layout (a directory, or a tar of one) or of a\n`docker save` tar. Tars may be compressed with gzip or zstd.",
		Example: "  checkfu image import app.tar\n  checkfu image import ./layout",
		Args:    oneArgument("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return argument.Unexpected("PATH", "an archive or a directory", args[0])
			}
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				found, err := store.Import(ctx, args[0])
				return a.tell(found, err)
			})
		},
	}
}

func (a *app) imagePull() *cobra.Command {
	return &cobra.Command{
		Use: "pull REF@DIGEST", Short: "Fetch an image from a registry, by digest",
		Long:    "Fetch an image without credentials. The reference must carry a digest: a tag is\nsomebody else's to move.",
		Example: "  checkfu image pull registry.example/app@sha256:…",
		Args:    oneArgument("REF@DIGEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				found, err := store.Pull(ctx, args[0])
				return a.tell(found, err)
			})
		},
	}
}

func (a *app) imageBuildBase() *cobra.Command {
	options := image.BaseOptions{Name: defaultImage}
	cmd := &cobra.Command{
		Use: "build-base", Short: "Build a Debian base image from the host's own package sources",
		Long: "Build the image that checkfu run takes by default, with mmdebstrap. The same\npackage versions give the same digest.",
		Example: `  sudo checkfu image build-base
  sudo checkfu image build-base --suite bookworm --package golang-go`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				if userns.Inside() {
					options.Root = &image.BuildRoot{IDBase: userns.Base, Reach: userns.Bind}
				}
				found, err := store.BuildBase(ctx, options)
				return a.tell(found, err)
			})
		},
	}
	cmd.Flags().StringVar(&options.Suite, "suite", "", "Debian suite (default the host's own)")
	cmd.Flags().StringVar(&options.Name, "name", defaultImage, "name of the image")
	cmd.Flags().StringArrayVar(&options.Packages, "package", nil, "package to add; may be repeated")
	return cmd
}

func (a *app) tell(found image.Image, err error) error {
	if err == nil {
		fmt.Fprintf(a.stdout, "%s\n", argument.Printable(found.Reference))
	}
	return err
}

func (a *app) imageList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the images", Example: "  checkfu image ls", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				images, err := store.List(ctx)
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "REFERENCE\tPLATFORM\tSIZE\tCREATED\tPACKAGES")
				for _, i := range images {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", argument.Printable(i.Reference), argument.Printable(i.Platform), argument.Bytes(i.Size), i.Created.UTC().Format(time.DateOnly), packagesOf(i))
				}
				return w.Flush()
			})
		},
	}
}

// packagesOf says what a derived image has beside its base; "" for any other image.
func packagesOf(i image.Image) string {
	if i.Derivation == nil {
		return ""
	}
	const most = 4
	names, more := i.Derivation.Packages, ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return argument.Printable(strings.Join(names, " ")) + more
}

func (a *app) imageRemove() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm REF", Aliases: []string{"remove"}, Short: "Remove an image", Args: oneArgument("REF"),
		Long: `Remove an image that nothing uses. One that only a paused session needs is removed
with --force: it cannot be resumed then until the same image is imported again. One
that a machine runs on stays in any case.`,
		Example: "  checkfu image rm app\n  checkfu image rm app --force",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				if force {
					return store.Remove(ctx, args[0])
				}
				found, err := store.Resolve(ctx, args[0])
				if err != nil {
					return err
				}
				dir, err := a.usableState()
				if err != nil {
					return err
				}
				// It goes under all its references, and somebody may need it by another: two
				// lists of packages can make the same image.
				images, err := store.List(ctx)
				if err != nil {
					return err
				}
				err = store.RemoveUnused(ctx, found.Digest, func() error { return a.unused(cmd, dir, images, found.Digest, pruneDocument{}) })
				if errors.Is(err, image.ErrInUse) {
					return fmt.Errorf("%s: a machine or a paused session needs it, see checkfu session ls; with --force a paused one does not count: %w", argument.Printable(args[0]), err)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also where a paused session needs it")
	return cmd
}

func (a *app) imageVerify() *cobra.Command {
	return &cobra.Command{
		Use: "verify REF", Short: "Compare an unpacked image with what was recorded of it",
		Example: "  checkfu image verify base", Args: oneArgument("REF"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, store *image.Store) error {
				found, err := store.Resolve(ctx, args[0])
				if err != nil {
					return err
				}
				if err := store.Verify(ctx, found.Digest); err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "%s is as it was unpacked\n", argument.Printable(found.Reference))
				return nil
			})
		},
	}
}
