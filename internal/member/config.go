package member

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// ErrCredentials is wrapped by errors about a Secret that does not hold what is
// needed to reach a cluster.
var ErrCredentials = errors.New("incomplete credentials")

// Config returns how to reach the cluster with the credentials in the Secret:
// a client certificate, a token, or a whole kubeconfig. A kubeconfig may not
// run programs or name files: it was written by somebody else.
func Config(fc *corev1alpha1.FederatedCluster, secret *corev1.Secret) (*rest.Config, error) {
	host, err := endpoint(fc.Spec.APIEndpoint)
	if err != nil {
		return nil, err
	}
	cfg := &rest.Config{Host: host}
	if kubeconfig, ok := secret.Data[corev1alpha1.SecretKubeconfig]; ok {
		cfg, err = fromKubeconfig(kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: key %s: %w", secret.Namespace, secret.Name, corev1alpha1.SecretKubeconfig, err)
		}
		cfg.Host = host
	} else if err := fromKeys(cfg, fc, secret); err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if fc.Spec.Insecure {
		cfg.TLSClientConfig.Insecure = true
		cfg.TLSClientConfig.CAData = nil // The two exclude each other.
	}
	cfg.UserAgent = "refract"
	cfg.QPS = -1                           // A member limits what it sends; others who use this have few requests.
	cfg.WarningHandler = rest.NoWarnings{} // Types are deprecated for people, not for those who list them all.
	return cfg, nil
}

func endpoint(s string) (string, error) {
	if s == "" {
		return "", errors.New("spec.apiEndpoint: is empty; want https://HOST:PORT")
	}
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", fmt.Errorf("spec.apiEndpoint: %q is not a URL of an API server; want https://HOST:PORT", s)
	}
	return s, nil
}

func fromKeys(cfg *rest.Config, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret) error {
	cfg.CAData = secret.Data[corev1alpha1.SecretCertificateAuth]
	token := secret.Data[corev1alpha1.SecretServiceAccountToken]
	if len(token) == 0 {
		token = secret.Data[corev1alpha1.SecretBootstrapToken]
	}
	if fc.Spec.UseServiceAccountToken && len(token) > 0 {
		cfg.BearerToken = string(token)
		return nil
	}
	cfg.CertData = secret.Data[corev1alpha1.SecretClientCertificate]
	cfg.KeyData = secret.Data[corev1alpha1.SecretClientKey]
	switch {
	case len(cfg.CertData) > 0 && len(cfg.KeyData) > 0:
		return nil
	case len(cfg.CertData) == 0 && len(cfg.KeyData) == 0 && len(token) > 0:
		cfg.BearerToken = string(token)
		return nil
	case len(cfg.CertData) == 0:
		return missing(corev1alpha1.SecretClientCertificate)
	default:
		return missing(corev1alpha1.SecretClientKey)
	}
}

func missing(key string) error {
	return fmt.Errorf("%w: key %s is missing; want %s and %s, or %s, or %s", ErrCredentials, key,
		corev1alpha1.SecretClientCertificate, corev1alpha1.SecretClientKey,
		corev1alpha1.SecretServiceAccountToken, corev1alpha1.SecretKubeconfig)
}

func fromKubeconfig(text []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	for name, user := range raw.AuthInfos {
		if what := outside(user); what != "" {
			return nil, fmt.Errorf("%w: user %q uses %s, which a stored kubeconfig may not; put the credentials into it as data", ErrCredentials, name, what)
		}
	}
	for name, cluster := range raw.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, fmt.Errorf("%w: cluster %q names a file as certificate-authority; use certificate-authority-data", ErrCredentials, name)
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	return cfg, nil
}

// outside names what of a user's credentials lies outside the kubeconfig.
func outside(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.Exec != nil:
		return "exec"
	case user.AuthProvider != nil:
		return "auth-provider"
	case user.TokenFile != "":
		return "tokenFile"
	case user.ClientCertificate != "":
		return "client-certificate"
	case user.ClientKey != "":
		return "client-key"
	default:
		return ""
	}
}
