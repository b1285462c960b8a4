package cli

import (
	"errors"
	"fmt"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// restConfig reads a kubeconfig file. An empty path means what kubectl would
// use, and inside a cluster the service account.
func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		if err != nil {
			return nil, withHint(fmt.Errorf("finding a kubeconfig: %w", err), "give one with --kubeconfig, or set $KUBECONFIG")
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading kubeconfig %s: no such file", path)
	case err != nil:
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// namespaceOf returns the namespace that the current context of a kubeconfig file
// names, as kubectl would use it.
func namespaceOf(path string) string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if path != "" {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	}
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault // What is wrong with the file is said when it is used.
	}
	return namespace
}
