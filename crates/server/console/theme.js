// Runs before the first paint: a chosen theme must not flash the other one first.
(() => {
  try {
    const theme = localStorage.getItem('tashika.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage the system's theme is used.
  }
})();
