package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const (
	chartDir  = "refract"
	valuesDir = "values"
	templates = "refract/templates/"

	// systemNamespace is the namespace in the manifests. `refract install` replaces it with the chosen name.
	systemNamespace = "kube-admiral-system"
)

// installations maps each values file, without .yaml, to the file below config/install for its namespace.
var installations = map[string]string{
	"propagation": "install/namespace.yaml",
	"injection":   "install/injection/namespace.yaml",
	"conversion":  "install/conversion/namespace.yaml",
	"member":      "", // Its namespace is in the file of the role.
}

// manifests renders the chart with the given values. It returns the text of each template with a result that is not
// empty, by the template's path below templates.
func manifests(c *chart.Chart, values map[string]any, namespace string) (map[string]string, error) {
	release := common.ReleaseOptions{Name: "refract", Namespace: namespace, IsInstall: true, Revision: 1}
	top, err := util.ToRenderValues(c, values, release, nil)
	if err != nil {
		return nil, err
	}
	all, err := new(engine.Engine).RenderWithContext(context.Background(), c, top)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, text := range all {
		name, text := strings.TrimPrefix(name, templates), strings.TrimSpace(text)
		if text != "" && path.Ext(name) == ".yaml" {
			texts[name] = text + "\n"
		}
	}
	return texts, nil
}

// config returns the files that the chart renders for config, by their paths below config.
func config() (map[string]string, error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	files := map[string]string{}
	for installation, namespace := range installations {
		texts, err := manifestsFor(c, installation)
		if err != nil {
			return nil, err
		}
		for name, text := range texts {
			head := "# Made from charts/" + templates + name + " by `make charts`: change that, and not this.\n"
			if strings.HasPrefix(text, "#") {
				head += "#\n"
			}
			text = head + text
			if name == "namespace.yaml" {
				name = namespace
			}
			if before, ok := files[name]; ok && before != text {
				return nil, fmt.Errorf("charts/%s/%s.yaml has %s come out differently than another: one file cannot be both", valuesDir, installation, name)
			}
			files[name] = text
		}
	}
	return files, nil
}

// manifestsFor returns the manifests for one of the installations.
func manifestsFor(c *chart.Chart, installation string) (map[string]string, error) {
	values, err := common.ReadValuesFile(filepath.Join(valuesDir, installation+".yaml"))
	if err != nil {
		return nil, err
	}
	texts, err := manifests(c, values, systemNamespace)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart with %s/%s.yaml: %w", valuesDir, installation, err)
	}
	return texts, nil
}

// writeConfig writes the rendered files into config.
func writeConfig(root string) error {
	files, err := config()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(root, "config", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(files[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}
