// Command charts renders manifests from Refract's Helm chart in the folder refract, and packs the chart.
//
//	charts render              writes config/install and config/rbac, rendered from the chart with each values file
//	charts package [-tag VERSION] [-digest DIGEST] DIR
//	                           writes the chart's archive, and the manifests for each values file, into DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

// root is the root of the repository, relative to the folder that this command runs in.
const root = ".."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want render, or package DIR")
	}
	switch args[0] {
	case "render":
		return writeConfig(root)
	case "package":
		f := flag.NewFlagSet("package", flag.ContinueOnError)
		tag := f.String("tag", "", "the version that is released: fail unless the chart names the image of this one")
		digest := f.String("digest", "", "the digest of the image that is released: the chart and the manifests name it")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		if f.NArg() != 1 {
			return errors.New("package: want one folder to write into")
		}
		at, err := commitTime(ctx)
		if err != nil {
			return err
		}
		return writePackage(f.Arg(0), *tag, *digest, at)
	}
	return fmt.Errorf("want render, or package DIR, got %q", args[0])
}

// commitTime returns the time of the commit that is checked out. All packed files have this time.
func commitTime(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("asking git for the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
