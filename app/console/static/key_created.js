// Makes a reload show the list of keys rather than create another key, from before the page is shown.
history.replaceState(null, "", document.currentScript.dataset.keys);
