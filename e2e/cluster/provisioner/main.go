// local-provisioner makes the volumes of an end-to-end cluster: a directory for each claim of its storage classes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisionerName = "forebay.dev/local-dir"
	provisionedBy   = "pv.kubernetes.io/provisioned-by"
	selectedNode    = "volume.kubernetes.io/selected-node"
)

// provisioner makes a "local" volume (a directory) for each claim of its
// storage classes, grows its stated size on demand, and removes it when its
// claim is gone. Sizes are bookkeeping: a directory has no quota.
type provisioner struct {
	client kubernetes.Interface
	dir    string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("local-provisioner", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file")
	dir := flags.String("dir", "", "directory under which the volumes are made, a folder per node")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	p := &provisioner{client: client, dir: *dir}
	factory := informers.NewSharedInformerFactory(client, time.Minute)
	claims := factory.Core().V1().PersistentVolumeClaims()
	volumes := factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{claims.Informer(), volumes.Informer(), classes.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	// Test clusters are small: each change looks at everything again.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
		allClaims, err := claims.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, claim := range allClaims {
			if claim.Spec.StorageClassName == nil {
				continue
			}
			class, err := classes.Lister().Get(*claim.Spec.StorageClassName)
			if err != nil || class.Provisioner != provisionerName {
				continue
			}
			reclaim := corev1.PersistentVolumeReclaimDelete
			if class.ReclaimPolicy != nil {
				reclaim = *class.ReclaimPolicy
			}
			if err := p.serve(ctx, claim, reclaim); err != nil {
				log.Printf("claim %s/%s: %v", claim.Namespace, claim.Name, err)
				time.AfterFunc(time.Second, poke)
			}
		}
		allVolumes, err := volumes.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, volume := range allVolumes {
			if err := p.reclaim(ctx, volume); err != nil {
				log.Printf("volume %s: %v", volume.Name, err)
				time.AfterFunc(time.Second, poke)
			}
		}
	}
}

// serve makes the volume of an unbound claim that the scheduler has given a
// node, and grows the volume of a bound one that asks for more.
func (p *provisioner) serve(ctx context.Context, claim *corev1.PersistentVolumeClaim, reclaim corev1.PersistentVolumeReclaimPolicy) error {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if claim.Status.Phase == corev1.ClaimBound {
		have := claim.Status.Capacity[corev1.ResourceStorage]
		if want.Cmp(have) <= 0 {
			return nil
		}
		volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if volume.Annotations[provisionedBy] != provisionerName {
			return nil
		}
		volume.Spec.Capacity[corev1.ResourceStorage] = want
		if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return err
		}
		claim = claim.DeepCopy()
		claim.Status.Capacity[corev1.ResourceStorage] = want
		claim.Status.Conditions = nil
		_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	}
	node := claim.Annotations[selectedNode]
	if node == "" || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(p.dir, node, name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // whatever the umask
		return err
	}
	mode := corev1.PersistentVolumeFilesystem
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: want},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    &mode,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: reclaim,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		log.Printf("made %s for claim %s/%s on node %s", name, claim.Namespace, claim.Name, node)
	}
	return err
}

// reclaim removes a volume of ours whose claim is gone.
func (p *provisioner) reclaim(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != provisionerName ||
		volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if volume.Spec.Local == nil {
		return errors.New("not a local volume")
	}
	path := filepath.Clean(volume.Spec.Local.Path)
	inside, err := filepath.Rel(p.dir, path)
	if err != nil || !filepath.IsLocal(inside) || filepath.Base(path) != volume.Name {
		return fmt.Errorf("%s is no directory of ours", path)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	log.Printf("removed %s", volume.Name)
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
