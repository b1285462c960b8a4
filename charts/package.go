package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// writePackage writes the chart's archive, and manifests for each of the installations, into a folder. The chart must name
// the image of the tag, if there is one.
func writePackage(dir, tag string, at time.Time) error {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return fmt.Errorf("loading the chart: %w", err)
	}
	if tag != "" && (c.Metadata.AppVersion != tag || "v"+c.Metadata.Version != tag) {
		return fmt.Errorf("charts/refract/Chart.yaml: want version %s and appVersion %s, as the tag says, got %s and %s: "+
			"write them there, run `make charts` and tag that commit",
			strings.TrimPrefix(tag, "v"), tag, c.Metadata.Version, c.Metadata.AppVersion)
	}
	if _, err := pack(c, dir, at); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	for installation := range installations {
		texts, err := manifestsFor(c, installation)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("# Refract %s, made from charts/refract with charts/%s/%s.yaml. Have its image where the cluster finds it, and name that here.\n",
			c.Metadata.AppVersion, valuesDir, installation)
		for _, name := range inOrder(texts) {
			text += "---\n" + texts[name]
		}
		if err := os.WriteFile(filepath.Join(dir, "install-"+installation+".yaml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes the chart's archive, and returns its path. It depends on nothing but the files and the time.
func pack(c *chart.Chart, dir string, at time.Time) (string, error) {
	c.ModTime, c.SchemaModTime = at, at
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		slices.SortFunc(files, func(a, b *common.File) int { return strings.Compare(a.Name, b.Name) })
		for _, f := range files {
			f.ModTime = at
		}
	}
	return chartutil.Save(c, dir)
}

// inOrder returns the names of manifests as they are to be applied: the namespace, what gives rights, what runs, what watches it.
func inOrder(texts map[string]string) []string {
	rank := func(name string) int {
		return slices.Index([]string{"namespace.yaml", "rbac", "install", "metrics"}, strings.SplitN(name, "/", 2)[0])
	}
	return slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		if rank(a) != rank(b) {
			return rank(a) - rank(b)
		}
		return strings.Compare(a, b)
	})
}
