package playground

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultClass is the annotation that makes a StorageClass the default of its cluster.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// differ creates the objects and starts the servers that the traits of the cluster require. The API server must be
// ready.
func (s *starter) differ(ctx context.Context, c *cluster) error {
	if c.Traits.Webhook {
		if err := s.startWebhook(ctx, c); err != nil {
			return fmt.Errorf("%s: starting the webhook: %w", c.Name, err)
		}
	}
	if c.Traits.StorageClass == "" {
		return nil
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, storageClass(c.Traits), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("%s: creating a StorageClass: %w", c.Name, err)
	}
	if c.role != full {
		return nil // Without controllers, no claims are bound, and quotas are not updated.
	}
	if err := s.provision(c, client); err != nil { //nolint:contextcheck // The provisioner ends with the playground.
		return fmt.Errorf("%s: starting the provisioner: %w", c.Name, err)
	}
	if !c.Traits.Quota {
		return nil
	}
	if _, err := client.CoreV1().ResourceQuotas(metav1.NamespaceDefault).Create(ctx, quota(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("%s: creating a ResourceQuota: %w", c.Name, err)
	}
	return nil
}

// storageClass returns the default StorageClass of a cluster with these traits.
func storageClass(t Traits) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingImmediate
	if t.WaitForConsumer {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: t.StorageClass, Annotations: map[string]string{defaultClass: "true"}},
		Provisioner:       provisionerName,
		VolumeBindingMode: &mode,
	}
}

// quota returns a ResourceQuota for the number of objects. It does not limit resources, because it would then reject
// Pods without resource requests.
func quota() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "lab", Namespace: metav1.NamespaceDefault},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourcePods:                   resource.MustParse("20"),
			corev1.ResourceServicesNodePorts:      resource.MustParse("5"),
			corev1.ResourceServicesLoadBalancers:  resource.MustParse("2"),
			corev1.ResourcePersistentVolumeClaims: resource.MustParse("10"),
		}},
	}
}
