package playground

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// provisionerName is the provisioner of the StorageClasses of a playground.
	provisionerName = "playground.refract.dev/volumes"
	// provisionedBy is the annotation of a volume that has a provisioner. Kubernetes leaves the deletion of such a
	// volume to the provisioner.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// provisionerAnnotation is the annotation of a claim that requests a volume from a provisioner.
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
)

// resync is the interval at which the provisioner repeats failed operations.
const resync = 5 * time.Second

// provisioner provisions the volumes of a cluster with simulated Pods. A volume is a PersistentVolume without storage.
type provisioner struct {
	client kubernetes.Interface
	log    *slog.Logger
}

// provision starts the provisioner of a cluster. The provisioner ends with the playground.
func (s *starter) provision(c *cluster, client kubernetes.Interface) error {
	file, err := os.Create(c.path(logsDir + "/provisioner.log"))
	if err != nil {
		return err
	}
	handler := slog.NewTextHandler(file, nil)
	p := &provisioner{client: client, log: slog.New(handler)}
	life := logr.NewContext(s.life, logr.FromSlogHandler(handler)) // The informers also write to the log.
	core := client.CoreV1().RESTClient()
	_, claims := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(core, "persistentvolumeclaims", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &corev1.PersistentVolumeClaim{},
		ResyncPeriod:  resync,
		Handler:       seen(func(claim *corev1.PersistentVolumeClaim) { p.claim(life, claim) }),
	})
	_, volumes := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(core, "persistentvolumes", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &corev1.PersistentVolume{},
		ResyncPeriod:  resync,
		Handler:       seen(func(volume *corev1.PersistentVolume) { p.volume(life, volume) }),
	})
	s.background.Go(func() {
		defer func() { _ = file.Close() }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			volumes.RunWithContext(life)
		}()
		claims.RunWithContext(life)
		<-done
	})
	return nil
}

// seen returns a handler that calls f for each object: at the beginning, after each change, and at each resync.
func seen[T any](f func(T)) cache.ResourceEventHandler {
	do := func(o any) {
		if t, ok := o.(T); ok {
			f(t)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, o any) { do(o) }}
}

// claim creates a volume for a claim that has none and waits for this provisioner.
func (p *provisioner) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Annotations[provisionerAnnotation] != provisionerName || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return
	}
	volume := volumeFor(claim)
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		p.log.Error("creating a volume", "claim", claim.Namespace+"/"+claim.Name, "err", err)
	}
}

// volume deletes a volume whose claim was deleted. It ignores volumes that users have created, which do not have the
// annotation of this provisioner.
func (p *provisioner) volume(ctx context.Context, volume *corev1.PersistentVolume) {
	if volume.Annotations[provisionedBy] != provisionerName || volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, *metav1.NewPreconditionDeleteOptions(string(volume.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		p.log.Error("deleting a volume", "volume", volume.Name, "err", err)
	}
}

// volumeFor returns the volume for a claim. The name of the volume contains the UID of the claim, so a repeated attempt
// cannot create a second volume.
func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    claim.Spec.Resources.Requests,
			AccessModes: claim.Spec.AccessModes,
			VolumeMode:  claim.Spec.VolumeMode,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: fmt.Sprintf("/var/lib/playground/%s", name)},
			},
		},
	}
}
