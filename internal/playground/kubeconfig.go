package playground

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigFile returns the path of the kubeconfig of a cluster's administrator.
func kubeconfigFile(dir, cluster string) string {
	return filepath.Join(dir, kubeconfigsDir, cluster+".yaml")
}

// writeKubeconfig writes a kubeconfig with the cluster's address and a client certificate. The file does not refer to
// other files. Its current context has the name of the cluster. The names in the file contain the name of the cluster,
// so that kubeconfigs of several clusters can be merged.
func writeKubeconfig(file string, c Cluster, ca []byte, user pair) error {
	name := c.Name + "-admin"
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{c.Name: {Server: c.Endpoint, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: user.cert, ClientKeyData: user.key}},
		Contexts:       map[string]*clientcmdapi.Context{c.Name: {Cluster: c.Name, AuthInfo: name}},
		CurrentContext: c.Name,
	}
	raw, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", c.Name, err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
	}
	return nil
}
