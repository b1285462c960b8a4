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

// writeKubeconfig writes a file with which the bearer of the certificate finds
// the cluster and is trusted there. It needs no other file. Its current context
// is named after the cluster, and no name in it occurs in that of another
// cluster, so that the files can be merged.
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
